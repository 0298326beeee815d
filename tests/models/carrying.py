"""A backbone small enough to be worked out on paper, with a memory of the kind that a Transformer-XL has."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import Backbone
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, assemble
from ebar.types import Context, Space


class Seen(NamedTuple):
    """The vectors of the last tokens, the newest last, and how many of them are there."""

    vectors: Float[Tensor, "rows memory width"]
    valid: Int[Tensor, " rows"]

    def select(self, rows: Int[Tensor, " selected"]) -> "Seen":
        return Seen(self.vectors[rows], self.valid[rows])


class Summing(nn.Module):
    """After each token, the sum of the vectors of what is seen: all of the memory and of the segment so far.

    How a text is cut matters, and it cannot be entered in the middle of a segment.
    """

    def __init__(self, vocabulary: int, *, memory: int = 3, width: int = 4):
        super().__init__()
        self.vocabulary, self.memory = vocabulary, memory
        self.inputs = nn.Parameter(torch.randn(vocabulary + 1, width))

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    def with_memory(self, memory: int, *, clamp_length: int | None = None, same_length: bool = False) -> "Summing":
        if same_length:
            raise ValueError("this one cannot see the same length everywhere")
        longer = Summing(self.vocabulary, memory=memory, width=self.width)
        longer.inputs = self.inputs
        return longer

    def empty_memory(self, rows: int) -> Seen:
        return Seen(self.inputs.new_zeros(rows, self.memory, self.width), torch.zeros(rows, dtype=torch.long))

    def read_segment(self, tokens: Int[Tensor, "rows length"], memory: Seen) -> tuple[Tensor, Seen]:
        vectors = self.inputs[tokens]
        hidden = memory.vectors.sum(1, keepdim=True) + vectors.cumsum(1)
        kept = torch.cat([memory.vectors, vectors], 1)[:, -self.memory :] if self.memory else memory.vectors
        return hidden, Seen(kept.detach(), (memory.valid + tokens.shape[1]).clamp(max=self.memory))

    def start(self, rows: int, context: Context | None = None) -> tuple[Tensor, Seen]:
        assert context is None
        hidden, state = self.advance(torch.full((rows, 1), self.vocabulary), self.empty_memory(rows))
        return hidden[:, 0], state

    def advance(self, tokens: Int[Tensor, "rows length"], state: Seen) -> tuple[Tensor, Seen]:
        """Token by token, so that each sees as many."""
        found = []
        for token in tokens.split(1, 1):
            hidden, state = self.read_segment(token, state)
            found.append(hidden)
        return torch.cat(found, 1), state


def carrying_model(kind: str, space: Space, *, dropout: float = 0.0) -> Any:
    """A small model by its backbone's name, in float64; `summing` is the one above."""
    torch.manual_seed(0)
    if kind == "summing":
        backbone: Backbone = Summing(space.vocabulary)
        return Autoregressive(backbone, Softmax(4, space.vocabulary), space).double().eval()
    options = {
        "lstm": {"layers": 2, "hidden": 6, "embedding": 4, "dropout": dropout},
        "transformer": {"layers": 2, "hidden": 8, "heads": 2, "dropout": dropout},
    }
    return assemble(space, kind, options[kind]).double().eval()


KINDS = ("lstm", "transformer", "summing")
