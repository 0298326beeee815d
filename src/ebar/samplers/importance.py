"""Importance sampling."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from ebar.bounds import Count
from ebar.models.scoring import propose
from ebar.samplers.draw import log_weights, proposal_for, shares
from ebar.types import Context, Distribution, Target, Weighted, context_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """x ~ q, w = P(x)/q(x). Needs q > 0 where P > 0.

    Unbiased for Z; moments from self-normalised weights are biased O(1/n). The variance is that of w under q:
    when it is large, draw from a proposal that looks ahead, or use smc or annealed.
    """

    weighted: ClassVar[bool] = True

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        proposal = proposal_for(target, proposal)
        for size in shares(n, context, self.batch_size):
            x, log_q = propose(proposal, size, context, generator)
            yield Weighted(x, log_weights(target, proposal, x, log_q, context).view(context_rows(context), size))
