"""A model with a parameter for every prefix: every quantity about it is known by enumeration."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.models.stepwise import only_end_in_last_place
from ebar.models.truncated import Truncatable
from ebar.types import Context, Space


class TabularState(NamedTuple):
    """The prefix of each row, read as a number in base |vocabulary|."""

    condition: Int[Tensor, " rows"]
    prefix: Int[Tensor, " rows"]
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "TabularState":
        return TabularState(self.condition[rows], self.prefix[rows], self.place)


class Tabular(Truncatable):
    """Any distribution on a small space: next-token logits for every prefix, in every one of a few conditions.

    The condition is the first token of the context; without a context it is condition 0.
    """

    free_logits = True

    def __init__(self, space: Space, logits: Float[Tensor, "conditions prefixes vocabulary"]):
        super().__init__()
        if space.completes:
            raise ValueError("the context of a tabular model is a condition, not the beginning of what it completes")
        expected = (number_of_prefixes(space), space.vocabulary)
        if tuple(logits.shape[1:]) != expected:
            raise ValueError(f"a table of {expected} logits per condition is needed, got {tuple(logits.shape[1:])}")
        self.space = space
        self.logits = nn.Parameter(logits)

    @classmethod
    def random(
        cls, space: Space, *, conditions: int = 1, scale: float = 1.0, dtype: torch.dtype = torch.float64,
        generator: Generator,
    ) -> "Tabular":  # fmt: skip
        """Independent normal logits."""
        shape = (conditions, number_of_prefixes(space), space.vocabulary)
        return cls(space, scale * torch.randn(shape, dtype=dtype, generator=generator))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], TabularState]:
        if context is None:
            condition = torch.zeros(rows, dtype=torch.long, device=self.logits.device)
        else:
            condition = context.given.tokens[:, 0].repeat_interleave(rows // context.rows)
        state = TabularState(condition, torch.zeros_like(condition), 0)
        return self._at(state), state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: TabularState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], TabularState]:
        seen = []
        for column in tokens.unbind(1):
            state = TabularState(state.condition, state.prefix * self.space.vocabulary + column, state.place + 1)
            seen.append(self._at(state))
        return torch.stack(seen, 1), state

    def _at(self, state: TabularState) -> Float[Tensor, "rows vocabulary"]:
        shorter = sum(self.space.vocabulary**place for place in range(state.place))
        logits = self.logits[state.condition, shorter + state.prefix]
        return only_end_in_last_place(logits[:, None], state.place, self.space)[:, 0]


def number_of_prefixes(space: Space) -> int:
    """Prefixes a next token can follow, the empty one included (those past an end token are never visited)."""
    return sum(space.vocabulary**place for place in range(space.length))
