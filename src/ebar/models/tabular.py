"""A model with a parameter for every prefix: every quantity about it is known by enumeration."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.maths.enumeration import all_sequences
from ebar.maths.randomness import default_generator
from ebar.models.stepwise import ancestral, only_end_in_last_place, sequence_log_prob
from ebar.models.truncated import Truncated
from ebar.types import Context, Sequences, Space, context_rows


class TabularState(NamedTuple):
    """The prefix of each row, read as a number in base |vocabulary|."""

    condition: Int[Tensor, " rows"]
    prefix: Int[Tensor, " rows"]
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "TabularState":
        return TabularState(self.condition[rows], self.prefix[rows], self.place)


class Tabular(nn.Module):
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

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return sequence_log_prob(self, x, context)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        return self.sample_with_log_prob(n, context, generator=generator or default_generator())[0]

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        return ancestral(self, n, context, generator=generator)

    def truncated(
        self, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
        length: int | None = None,
    ) -> Truncated:  # fmt: skip
        """A distribution of its own, that draws from this one with its tail cut off."""
        return Truncated(self, temperature=temperature, top_k=top_k, top_p=top_p, length=length)


def number_of_prefixes(space: Space) -> int:
    """Prefixes a next token can follow, the empty one included (those past an end token are never visited)."""
    return sum(space.vocabulary**place for place in range(space.length))


def whole_space(space: Space, context: Context | None = None) -> Sequences:
    """Every sequence of the space, once for each row of the context, context-major."""
    everything = all_sequences(space)
    rows = context_rows(context)
    return Sequences(everything.tokens.repeat(rows, 1), everything.lengths.repeat(rows))
