"""Rejection sampling: exact draws where a bound on P/q is known, and draws at a measured distance where none is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ebar.bounds import Count
from ebar.energies.linear import bound_of
from ebar.errors import UserError
from ebar.models.tilted import Tilted
from ebar.samplers.accept import Attempts, CountingSampler, accept, weighed
from ebar.samplers.draw import Setting, group_size, numbered, proposal_for, shares
from ebar.samplers.protocols import Bounded, RatioBounded
from ebar.types import Distribution, Target, Weighted

PILOT = 1000  # proposals for each row of the context, to find the ceiling with


class _Accepting(CountingSampler):
    """What rejection and quasi-rejection share: proposals are accepted with probability min(1, w/ceiling)."""

    __slots__ = ()
    max_proposals: Count
    batch_size: Count

    def _accepted(self, setting: Setting, n: int, log_ceiling: float, *, is_bound: bool) -> Iterator[Attempts]:
        # Two proposals per draw, so that there is always room for the two draws that the estimate of Z needs.
        for size in shares(n, setting.context, self.batch_size, proposals_per_draw=2):
            yield accept(
                setting,
                max(size, 2),
                log_ceiling,
                ceiling_is_bound=is_bound,
                batch_size=self.batch_size,
                max_proposals=self.max_proposals,
            )

    def _weighed(self, setting: Setting, n: int, log_ceiling: float, *, is_bound: bool) -> Iterator[Weighted]:
        parts = self._accepted(setting, n, log_ceiling, is_bound=is_bound)
        return numbered(weighed(part, log_ceiling, group_size(n)) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection(_Accepting):
    """x ~ q, kept with probability P(x) / (M·q(x)), where M ≥ P/q everywhere: what is kept is i.i.d. from p.

    Weights come from the number of proposals that the draws took: `accept.weighed`.
    """

    log_bound: float | None = None
    """On log P − log q; None: the energy's or the proposal's own."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        return self._weighed(setting, n, self.bound(setting.target, setting.given), is_bound=True)

    def attempted(self, setting: Setting, n: int) -> Iterator[Attempts]:
        return self._accepted(setting, n, self.bound(setting.target, setting.given), is_bound=True)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class QuasiRejection(_Accepting):
    """x ~ q, kept with probability min(1, P(x) / (β·q(x))): draws are i.i.d. from p_β ∝ min(P, β·q).

    As β grows the draws tend to p and the acceptance rate Z_β/β, with Z_β = E_q[min(P/q, β)], to 0; with β ≥ max P/q
    this is rejection sampling. `trade_off` draws the curve, `log_beta_for` picks a point of it. Eikema et al. 2022.

    Taken as they are, draws have the moments of p_β. Their weights, in proportion to max(1, P/(β·q)), undo that:
    weighted, they are draws for p, and estimate Z (`accept.weighed`).
    """

    log_beta: float | None = None
    """The ceiling, in the units of P/q; None: the largest weight among 1,000 proposals drawn to find it."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        return self._weighed(setting, n, self.ceiling(setting), is_bound=False)

    def attempted(self, setting: Setting, n: int) -> Iterator[Attempts]:
        return self._accepted(setting, n, self.ceiling(setting), is_bound=False)

    def ceiling(self, setting: Setting) -> float:
        """The log β given, or the largest log-weight of a pilot: what lies above it is rarer than one in a thousand."""
        if self.log_beta is not None:
            return self.log_beta
        largest = float(setting.log_weights(*setting.propose(PILOT)).max())
        if largest == -math.inf:
            raise UserError(
                f"None of {PILOT:,} proposals has a positive weight, so no ceiling can be found: give log_beta, "
                "or use a proposal that looks ahead."
            )
        return largest
