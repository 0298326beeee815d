"""Quasi-rejection sampling: rejection without a bound, at a price that can be measured."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Generator

from ebar.bounds import Count
from ebar.errors import UserError
from ebar.models.scoring import propose
from ebar.samplers.accept import Attempts, accept, weighed
from ebar.samplers.draw import group_size, log_weights, numbered, proposal_for, shares
from ebar.types import Context, Distribution, Target, Weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class QuasiRejection:
    """x ~ q, kept with probability min(1, P(x) / (β·q(x))): draws are i.i.d. from p_β ∝ min(P, β·q).

    As β grows the draws tend to p and the acceptance rate Z_β/β, with Z_β = E_q[min(P/q, β)], to 0; with β ≥ max P/q
    this is rejection sampling. `trade_off` draws the curve, `log_beta_for` picks a point of it. Eikema et al. 2022.

    Taken as they are, draws have the moments of p_β. Their weights, in proportion to max(1, P/(β·q)), undo that:
    weighted, they are draws for p, and estimate Z (`accept.weighed`).
    """

    weighted: ClassVar[bool] = True

    log_beta: float | None = None
    """The ceiling, in the units of P/q; None: the largest weight among 1,000 proposals drawn to find it."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        proposal = proposal_for(target, proposal)
        log_beta = self.ceiling(target, proposal, context, generator=generator)
        parts = replace(self, log_beta=log_beta).attempts(
            target, n, proposal=proposal, context=context, generator=generator
        )
        return numbered(weighed(part, log_beta, group_size(n)) for part in parts)

    def ceiling(
        self, target: Target, proposal: Distribution, context: Context | None = None, *, generator: Generator
    ) -> float:
        """The log β given, or the one that a pilot finds."""
        return _largest_log_weight(target, proposal, context, generator) if self.log_beta is None else self.log_beta

    def attempts(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Attempts]:  # fmt: skip
        """The draws of `stream`, with the numbers of proposals they took."""
        proposal = proposal_for(target, proposal)
        log_beta = self.ceiling(target, proposal, context, generator=generator)
        # Two proposals per draw, so that there is always room for the two draws that the estimate of Z needs.
        for size in shares(n, context, self.batch_size, proposals_per_draw=2):
            yield accept(
                target,
                proposal,
                max(size, 2),
                log_beta,
                context,
                ceiling_is_bound=False,
                batch_size=self.batch_size,
                max_proposals=self.max_proposals,
                generator=generator,
            )


PILOT = 1000  # proposals for each row of the context, to find the ceiling with


def _largest_log_weight(target: Target, proposal: Distribution, context: Context | None, generator: Generator) -> float:
    """Over all rows of the context: what lies above it is rarer than one in a thousand."""
    x, log_q = propose(proposal, PILOT, context, generator)
    largest = float(log_weights(target, proposal, x, log_q, context).max())
    if largest == -math.inf:
        raise UserError(
            f"None of {PILOT:,} proposals has a positive weight, so no ceiling can be found: give log_beta, "
            "or use a proposal that looks ahead."
        )
    return largest
