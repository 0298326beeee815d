"""Rejection sampling: exact draws where a bound on P/q is known, and draws at a measured distance where none is.

Proposals are accepted with probability min(1, w/ceiling), until every row of the context has enough.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.bounds import Count
from ebar.energies.linear import bound_of
from ebar.errors import UserError
from ebar.maths.rows import put, take
from ebar.models.tilted import Tilted
from ebar.samplers.draw import BatchSampler, Bounded, RatioBounded, Setting, group_size, numbered, proposal_for, shares
from ebar.types import Context, Distribution, PointSpace, Sequences, Space, Target, Weighted, X


class Attempts(NamedTuple, Generic[X]):
    """Draws, with what it took to get them."""

    x: X  # context-major
    accepted: Int[Tensor, " rows"]
    proposed: Int[Tensor, " rows"]
    reached: Int[Tensor, "rows draws"] | None = None  # the number of the proposal that became each draw, from 1
    log_excess: Float[Tensor, "rows draws"] | None = None  # log w − log ceiling of each draw

    @property
    def acceptance_rate(self) -> float:
        """Over all rows of the context."""
        return float(self.accepted.sum() / self.proposed.sum())


def coin(log_probability: Float[Tensor, "*shape"], generator: Generator) -> Tensor:
    """True with the given probability, for each entry; log-probabilities above 0 count as 0.

    The uniform number has two words of 53 bits, whatever the type of the log-probabilities: it lies in (0, 1], its
    least value is 2⁻¹⁰⁶, and so a chance of e⁻⁶⁰ is one. A float32 of 24 bits is 0 once in 2²⁴ times, which is below
    every positive probability.
    """
    words = torch.rand(
        2, *log_probability.shape, generator=generator, dtype=torch.float64, device=log_probability.device
    )
    uniform = words[0] + (1 - words[1]) * 2.0**-53
    return uniform.log() <= log_probability.double()


class CountingSampler(BatchSampler):
    """A sampler that also tells what its draws took."""

    __slots__ = ()

    def attempts(
        self, target: Target[X], n: int, *, proposal: Distribution[X, Any] | None = None,
        context: Context | None = None, generator: Generator,
    ) -> Iterator[Attempts[X]]:  # fmt: skip
        """The draws of `stream`, with the numbers of proposals or moves they took instead of weights."""
        return self.attempted(Setting(target, proposal, context, generator), n)

    @abstractmethod
    def attempted(self, setting: Setting[Any], n: int) -> Iterator[Attempts[Any]]: ...


def _widened(x: Any, space: Space | PointSpace) -> Any:
    """Sequences as wide as the space is long, so that draws of several batches fit together; points as they are."""
    if not isinstance(x, Sequences) or not isinstance(space, Space):
        return x
    return x._replace(tokens=F.pad(x.tokens, (0, space.length - x.tokens.shape[1])))


def weighed(part: Attempts[X], log_ceiling: float, group_size: int) -> Weighted[X]:
    """The draws with weights that estimate Z, in groups of some `group_size` draws.

    The proposals from one group's last draw to the next group's are as many as a negative binomial says, N for the
    k-th acceptance, and (k−1)/(N−1) is unbiased for the acceptance probability when k ≥ 2 (k/N is not; Haldane 1945).
    It does not depend on what was accepted. So ceiling·(k−1)/(N−1), the group's estimate of E[min(w, ceiling)], times
    max(1, w/ceiling) are proper weights, and those of one group depend on one another through N.
    """
    assert part.reached is not None
    assert part.log_excess is not None
    draws = part.reached.shape[1]
    groups = max(1, min(draws // 2, round(draws / group_size)))
    group = torch.arange(draws, device=part.reached.device) * groups // draws
    sizes = torch.bincount(group)
    ends = part.reached[:, sizes.cumsum(0) - 1]
    proposed = ends - F.pad(ends[:, :-1], (1, 0))
    log_rate = torch.log((sizes - 1) / (proposed - 1).double())
    return Weighted(part.x, log_ceiling + log_rate[:, group] + part.log_excess.clamp(min=0), group)


def _check_bound(excess: Float[Tensor, "rows draws"], log_bound: float) -> None:
    """A weight above the bound makes rejection sampling wrong, so it is never let pass; rounding is."""
    above = float(excess.max())
    rounding = 1000 * torch.finfo(excess.dtype).eps * max(1.0, abs(log_bound))
    if above > rounding:
        raise UserError(
            f"A weight exceeds the bound of rejection sampling by {above:.4g} nats: "
            f"log_bound must be at least {log_bound + above:.6g}, not {log_bound:.6g}."
        )


PILOT = 1000  # proposals for each row of the context, to find the ceiling with


class _Accepting(CountingSampler):
    """What rejection and quasi-rejection share: proposals are accepted with probability min(1, w/ceiling)."""

    __slots__ = ()
    max_proposals: Count
    batch_size: Count

    def _accepted(self, setting: Setting[X], n: int, log_ceiling: float, *, is_bound: bool) -> Iterator[Attempts[X]]:
        # Two proposals per draw, so that there is always room for the two draws that the estimate of Z needs.
        for size in shares(n, setting.context, self.batch_size, proposals_per_draw=2):
            yield self._accept(setting, max(size, 2), log_ceiling, is_bound=is_bound)

    @torch.no_grad()
    def _accept(self, setting: Setting[X], wanted: int, log_ceiling: float, *, is_bound: bool) -> Attempts[X]:
        """Propose until `wanted` have been accepted in each row; `proposed` counts up to the last one accepted.

        Rows that have enough are no longer proposed for. Each row's proposals form one i.i.d. sequence however they
        are batched, so what lies past its last acceptance can be thrown away without changing the law of anything.
        """
        _, _, context, generator = setting
        rows, device = setting.rows, setting.generator.device
        have = torch.zeros(rows, dtype=torch.long, device=device)
        proposed, refused_in_a_row = have.clone(), have.clone()
        found: Any = None  # room for all draws, made when the first come
        reached = torch.zeros(rows * wanted, dtype=torch.long, device=device)
        log_excess = torch.zeros(rows * wanted, dtype=torch.float64, device=device)
        while True:
            active = (have < wanted).nonzero().squeeze(1)
            if len(active) == 0:
                x: Any = found.trimmed() if isinstance(found, Sequences) else found
                return Attempts(x, have, proposed, reached.view(rows, wanted), log_excess.view(rows, wanted))
            missing = wanted - have[active]
            # As many as the slowest row should still need, were its rate so far the true one.
            expected = missing * (proposed[active] + 1) / (have[active] + 1)
            size = int(expected.max().ceil().clamp(max=self.batch_size // len(active), min=1))
            own = setting._replace(context=None if context is None else context.select(active))
            x, log_q = own.propose(size)
            excess = own.log_weights(x, log_q).view(-1, size) - log_ceiling
            if is_bound:
                _check_bound(excess, log_ceiling)
            accepted = coin(excess, generator)
            rank = accepted.cumsum(1)
            kept = accepted & (rank <= missing[:, None])
            slot = (active * wanted + have[active])[:, None] + rank - 1
            wide = _widened(x, setting.proposal.space)
            found = take(wide, torch.zeros(rows * wanted, dtype=torch.long)) if found is None else found
            put(found, slot[kept], take(wide, kept.flatten().nonzero().squeeze(1)))
            number = proposed[active, None] + torch.arange(1, size + 1, device=device)
            reached[slot[kept]], log_excess[slot[kept]] = number[kept], excess[kept].double()
            before_enough = (rank < missing[:, None]).sum(1)
            proposed[active] += (before_enough + 1).clamp(max=size)
            have[active] += kept.sum(1)
            since_last = (rank == rank[:, -1:]).sum(1) - 1  # proposals after the last acceptance, if there was one
            refused_in_a_row[active] = torch.where(accepted.any(1), since_last, refused_in_a_row[active] + size)
            if bool(((refused_in_a_row >= self.max_proposals) & (have < wanted)).any()):
                rate = float(have.sum() / proposed.sum())
                raise UserError(
                    f"{self.max_proposals:,} proposals in a row were refused (acceptance so far {rate:.2g}): use a "
                    "proposal that looks ahead, or importance or smc, or raise max_proposals."
                )

    def _weighed(self, setting: Setting[X], n: int, log_ceiling: float, *, is_bound: bool) -> Iterator[Weighted[X]]:
        parts = self._accepted(setting, n, log_ceiling, is_bound=is_bound)
        return numbered(weighed(part, log_ceiling, group_size(n)) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection(_Accepting):
    """x ~ q, kept with probability P(x) / (M·q(x)), where M ≥ P/q everywhere: what is kept is i.i.d. from p.

    Weights come from the number of proposals that the draws took: `weighed`.
    """

    log_bound: float | None = None
    """On log P − log q; None: the energy's or the proposal's own."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        return self._weighed(setting, n, self.bound(setting.target, setting.given), is_bound=True)

    def attempted(self, setting: Setting[X], n: int) -> Iterator[Attempts[X]]:
        return self._accepted(setting, n, self.bound(setting.target, setting.given), is_bound=True)

    def bound(self, target: Target[X], proposal: Distribution[X, Any] | None = None) -> float:
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
    weighted, they are draws for p, and estimate Z (`weighed`).
    """

    log_beta: float | None = None
    """The ceiling, in the units of P/q; None: the largest weight among 1,000 proposals drawn to find it."""
    max_proposals: Count = 1_000_000
    """Refused in a row before giving up."""
    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        return self._weighed(setting, n, self.ceiling(setting), is_bound=False)

    def attempted(self, setting: Setting[X], n: int) -> Iterator[Attempts[X]]:
        return self._accepted(setting, n, self.ceiling(setting), is_bound=False)

    def ceiling(self, setting: Setting[X]) -> float:
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
