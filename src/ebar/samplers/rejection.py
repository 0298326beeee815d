"""Rejection sampling: exact draws, where a bound on P/q is known."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from ebar.bounds import Count
from ebar.energies.bounded import bound_of
from ebar.errors import UserError
from ebar.models.tilted import Tilted
from ebar.samplers.accept import Attempts, accept, weighed
from ebar.samplers.draw import group_size, numbered, proposal_for, shares
from ebar.samplers.protocols import Bounded, RatioBounded
from ebar.types import Context, Distribution, Target, Weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """x ~ q, kept with probability P(x) / (M·q(x)), where M ≥ P/q everywhere: what is kept is i.i.d. from p.

    Weights come from the number of proposals that the draws took: `accept.weighed`.
    """

    weighted: ClassVar[bool] = True

    log_bound: float | None = None
    """On log P − log q; None: the energy's or the proposal's own."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        log_bound = self.bound(target, proposal)
        parts = self.attempts(target, n, proposal=proposal, context=context, generator=generator)
        return numbered(weighed(part, log_bound, group_size(n)) for part in parts)

    def attempts(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Attempts]:  # fmt: skip
        """The draws of `stream`, with the numbers of proposals instead of weights."""
        log_bound = self.bound(target, proposal)
        proposal = proposal_for(target, proposal)
        # Two proposals per draw, so that there is always room for the two draws that the estimate of Z needs.
        for size in shares(n, context, self.batch_size, proposals_per_draw=2):
            yield accept(
                target,
                proposal,
                max(size, 2),
                log_bound,
                context,
                ceiling_is_bound=True,
                batch_size=self.batch_size,
                max_proposals=self.max_proposals,
                generator=generator,
            )

    def bound(self, target: Target, proposal: Distribution | None = None) -> float:
        """The bound on log P − log q that will be used."""
        if self.log_bound is not None:
            return self.log_bound
        proposal = proposal_for(target, proposal)
        if target is proposal:
            return 0.0
        if isinstance(proposal, RatioBounded):
            known = proposal.log_ratio_bound(target)
            if known is not None:
                return known
        if isinstance(target, Tilted) and target.base is proposal and isinstance(target.energy, Bounded):
            return target.energy.log_bound()
        if isinstance(target, Tilted) and target.base is proposal:
            own = bound_of(target.energy)
            if own is not None:
                return own
        what = "a proposal other than its base" if isinstance(target, Tilted) and target.base is not proposal else "it"
        raise UserError(
            f"Rejection sampling needs a bound on P/q and none is known for this target with {what}: give log_bound, "
            "or use quasi_rejection, importance, resampling, smc or metropolis."
        )
