"""Local-XL: Transformers whose attention is local and relative. Dai 2019 (thesis), chapter 5.

Time and memory grow with the length of a text, not with its square. A layer sees at most 2C − 1 places back, so what
lies further back than the sum of that over the layers changes nothing.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.bounded import BoundedBackbone, BoundedLayer, BoundedState, BoundedStepper, each_layers
from ebar.backbones.decoder import checked_sizes
from ebar.backbones.local_attention import TERMS, LocalAttention, masked_softmax
from ebar.backbones.transformer import picked
from ebar.backbones.transformer_layer import dropped
from ebar.types import Sequences


class LocalXl(BoundedBackbone):
    """Tokens → hidden vectors; each place sees its own chunk up to itself and the chunk before it.

    `chunk` is one number, or one for each layer. With `window` each place sees exactly the last `chunk` places, itself
    included. `terms` of the score are all, or some of content, bias, dynamic and light, joined by +. Chunks are counted
    from the beginning of the text, prefix included, so that all ways to read it give the same numbers.
    `feedforward` is 4 × hidden unless said.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, chunk: int | list[int] = 64, window: bool = False, terms: str = "all",
    ):  # fmt: skip
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        chunks, some = each_layers(chunk, layers, "chunk"), named_terms(terms)
        mixers = [LocalAttention(hidden, heads, chunk=one, window=window, terms=some) for one in chunks]
        super().__init__(vocabulary, mixers, hidden=hidden, feedforward=feedforward, dropout=dropout)

    def stepper(self, state: BoundedState) -> BoundedStepper:
        """The sampling step, its memory written in place."""
        layers = zip(self._mixers(), state.memory, strict=True)
        return BoundedStepper(self, [LocalCache(mixer, memory, state.place) for mixer, memory in layers])  # type: ignore[arg-type]


class LocalBidirectional(nn.Module):
    """Tokens → hidden vectors; each place sees its own chunk and those left and right of it, padding never.

    Otherwise as `BidirectionalTransformer`: a beginning stands before the first token and is one more token after the
    vocabulary, and the mask of masked language modelling is the next. Chunks are counted from the beginning.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, chunk: int | list[int] = 64, window: bool = False, terms: str = "all",
    ):  # fmt: skip
        super().__init__()
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        chunks, some = each_layers(chunk, layers, "chunk"), named_terms(terms)
        self.vocabulary, self.dropout, self.scale = vocabulary, dropout, math.sqrt(hidden)
        self.inputs = nn.Parameter(torch.randn(vocabulary + 2, hidden) / self.scale)
        self.layers = nn.ModuleList(
            BoundedLayer(
                LocalAttention(hidden, heads, chunk=one, window=window, terms=some), hidden,
                feedforward=feedforward or 4 * hidden, dropout=dropout, layers=layers,
            )
            for one in chunks
        )  # fmt: skip
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    @property
    def mask_token(self) -> int:
        """Stands where a token is hidden."""
        return self.vocabulary + 1

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        tokens = F.pad(torch.where(inside, x.tokens, self.vocabulary), (1, 0), value=self.vocabulary)
        hidden = dropped(F.embedding(tokens, self.inputs) * self.scale, self.dropout, self.training)
        counts = None if bool(inside.all()) else F.pad(inside, (1, 0), value=True)
        for layer in self.layers:
            hidden = layer.added(hidden, layer.mixer.around(layer.mixer_norm(hidden), counts))  # type: ignore[operator, union-attr]
        return self.norm(hidden)[:, 1:]  # type: ignore[no-any-return]


class LocalCache:
    """Keys and values of the last 2C places (C of a window), each at its place modulo their number."""

    def __init__(
        self, attention: LocalAttention, memory: Float[Tensor, "rows before parts heads size"],
        place: Int[Tensor, " rows"] | int,
    ):  # fmt: skip
        self.attention, self.place = attention, place if isinstance(place, int) else place.clone()
        self.slots = attention.chunk if attention.window else 2 * attention.chunk
        with torch.no_grad():
            rows, before = memory.shape[:2]
            each = torch.arange(self.slots, device=memory.device)
            which = (each - torch.as_tensor(place, device=memory.device).reshape(-1, 1) + before) % self.slots
            room = F.pad(memory.flatten(2), (0, 0, 0, self.slots - before))
            kept = torch.unflatten(picked(room, which.expand(rows, -1)), 2, memory.shape[2:])
            self.memory = kept.permute(2, 0, 3, 1, 4).contiguous()  # [parts, rows, heads, slots, size]
            self.kernels = None if attention.positions is None else attention.kernels(range(self.slots))
        self.each = each

    def step(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        attention, rows = self.attention, len(inputs)
        new = attention.remember(inputs[:, None])[:, 0].transpose(0, 1)
        if isinstance(self.place, int):
            self.memory[:, :, :, self.place % self.slots] = new
        else:
            at = torch.arange(rows, device=inputs.device)
            self.memory.permute(1, 3, 0, 2, 4)[at, self.place % self.slots] = new.transpose(0, 1)
        place = torch.as_tensor(self.place, device=inputs.device).reshape(-1, 1)
        distances = (place - self.each) % self.slots  # of each slot
        reach = place if attention.window else torch.minimum(place, place % attention.chunk + attention.chunk)
        scale = 1 / math.sqrt(attention.size)
        to_keys, to_distances = attention.queries(inputs)
        scores = inputs.new_zeros(rows, attention.heads, self.slots)
        if to_distances is not None and self.kernels is not None:
            by_distance = torch.bmm((to_distances * scale).transpose(0, 1), self.kernels).transpose(0, 1)
            scores = by_distance.gather(2, distances[:, None].expand(rows, attention.heads, -1))
        if to_keys is not None:
            scores = scores + (self.memory[0] @ (to_keys * scale)[..., None])[..., 0]
        weights = masked_softmax(scores, (distances > reach)[:, None])
        self.place = self.place + 1
        return torch.matmul(weights[:, :, None], self.memory[-1])[:, :, 0].flatten(1)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.memory = self.memory[:, rows]
        self.place = self.place if isinstance(self.place, int) else self.place[rows]


def named_terms(terms: str) -> tuple[str, ...]:
    """The terms of the score, from their names."""
    if terms == "all":
        return TERMS
    named = tuple(terms.split("+"))
    if not set(named) <= set(TERMS):
        raise ValueError(f"terms must be all, or some of {', '.join(TERMS)} joined by +, not {terms!r}")
    return named
