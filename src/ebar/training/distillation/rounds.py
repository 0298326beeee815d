"""One round of a distillation: as many lines as it is asked for, by whatever a sampler can do."""

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.models.tilted import Tilted
from ebar.samplers.guided import Guided
from ebar.samplers.importance import Ancestral, Importance, systematic
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.rejection import Attempts, QuasiRejection, Rejection, coin
from ebar.samplers.trade_off import trade_off
from ebar.types import Distribution, Sampler, Sequences, Target, Weighted

TOLERANCE = 0.01  # in total variation, from p
PRIOR = 50  # proposals that an earlier acceptance rate counts for, when the next batch is sized


class DistillationRound(NamedTuple):
    """The lines of one round, and what they say of P."""

    x: Sequences
    log_weights: Float[Tensor, " draws"]  # log P/q of i.i.d. proposals, in a number that no outcome decided; or none
    accepted: int = 0
    proposed: int = 0  # up to the last acceptance; 0 where nothing is refused
    effective: float | None = None  # the effective sample size of the lines, where that is known
    log_z: float | None = None  # this round's unbiased estimate of Z, where its draws are not independent


class Ceiling(NamedTuple):
    """The β of quasi-rejection, and the share of proposals that it lets pass."""

    log_beta: float
    rate: float


def has_independent_lines(sampler: Sampler) -> bool:
    """Whether lines are i.i.d.; else only rounds are."""
    return isinstance(sampler, Rejection | QuasiRejection | Ancestral)


def weigh(target: Target, proposal: Distribution, n: int, generator: Generator) -> Weighted:
    """n proposals with their weights; where the proposal walks along the base, its log-probability is the walk's."""
    walks = isinstance(proposal, Guided) and isinstance(target, Tilted) and target.base is proposal.base
    sampler: Sampler = LookAhead(batch_size=n, defence=0.0) if walks else Importance(batch_size=n)
    [weighted] = sampler.stream(target, n, proposal=proposal, generator=generator)
    check_weights(weighted.log_weights)
    return weighted


def find_ceiling(target: Target, proposal: Distribution, pilot: int, generator: Generator) -> Ceiling:
    """The smallest β at which, by the weights of a pilot, TV(p_β, p) ≤ TOLERANCE: no β above it would pay for itself.

    The largest weight would be exact for the pilot, and is many times too dear where weights have a tail.
    """
    log_w = weigh(target, proposal, pilot, generator).log_weights[0].double()
    if float(log_w.max()) == -math.inf:
        raise UserError(
            f"None of {pilot:,} proposals has a positive weight, so no ceiling can be found: give log_beta, "
            "or use a proposal that looks ahead."
        )
    candidates = log_w[log_w > -math.inf].sort().values

    def near_enough(place: int) -> bool:
        return trade_off(log_w[None], candidates[place : place + 1])[0].total_variation.value <= TOLERANCE

    # The distance falls as β rises, and is 0 at the largest weight.
    log_beta = float(candidates[bisect_left(range(len(candidates) - 1), True, key=near_enough)])
    return Ceiling(log_beta, float((log_w - log_beta).clamp(max=0.0).exp().mean()))


def draw_round(
    sampler: Sampler,
    target: Target,
    size: int,
    *,
    proposal: Distribution | None,
    ceiling: Ceiling | None,
    weighted_draws: int,
    generator: Generator,
) -> DistillationRound:
    """`size` lines. Those of weighted samplers are chosen among `weighted_draws` times as many."""
    if isinstance(sampler, QuasiRejection):
        assert proposal is not None
        assert ceiling is not None
        return _accepted(sampler, target, proposal, size, ceiling, generator)
    if isinstance(sampler, Rejection):
        return _rejected(sampler.attempts(target, size, proposal=proposal, generator=generator), size)
    if isinstance(sampler, Ancestral):
        x = Sequences.join([part.x for part in sampler.stream(target, size, proposal=proposal, generator=generator)])
        return DistillationRound(x, torch.zeros(0), effective=float(size))
    if sampler.weighted:
        parts = sampler.stream(target, size * weighted_draws, proposal=proposal, generator=generator)
        return _resampled(parts, size, generator)
    batches = list(sampler.stream(target, size, proposal=proposal, generator=generator))
    return DistillationRound(Weighted.join(batches, one_stream=True).select(slice(size)).x, torch.zeros(0))


@torch.no_grad()
def _accepted(
    sampler: QuasiRejection,
    target: Target,
    proposal: Distribution,
    wanted: int,
    ceiling: Ceiling,
    generator: Generator,
) -> DistillationRound:
    """As `samplers.accept`, without a second pass over the base and with the weights of the first proposals kept."""
    parts: list[Sequences] = []
    kept_weights: list[Tensor] = []
    have = proposed = seen = refused_in_a_row = 0
    while have < wanted:
        missing = wanted - have
        rate = (have + PRIOR * ceiling.rate) / (proposed + PRIOR)
        size = min(math.ceil(1.03 * missing / rate), sampler.batch_size)  # a little more: a short last batch is dear
        batch = weigh(target, proposal, size, generator)
        log_w = batch.log_weights[0].double()
        accepted = coin(log_w - ceiling.log_beta, generator)
        rank = accepted.cumsum(0)
        kept = accepted & (rank <= missing)
        parts.append(batch.x.select(kept))
        # `wanted` proposals are made whatever happens: those are i.i.d., where all up to the last accepted are not.
        kept_weights.append(log_w[: max(0, wanted - seen)])
        seen += size
        proposed += min(int((rank < missing).sum()) + 1, size)
        have += int(kept.sum())
        last = int(accepted.nonzero()[-1]) if bool(accepted.any()) else None
        refused_in_a_row = refused_in_a_row + size if last is None else size - 1 - last
        if refused_in_a_row >= sampler.max_proposals and have < wanted:
            raise UserError(
                f"{refused_in_a_row:,} proposals in a row were refused (acceptance so far {have / proposed:.2g}): "
                "use a proposal that looks ahead, or a smaller log_beta, or raise max_proposals."
            )
    return DistillationRound(Sequences.join(parts), torch.cat(kept_weights), wanted, proposed, effective=float(wanted))


def _rejected(attempts: Iterable[Attempts], size: int) -> DistillationRound:
    parts = list(attempts)
    accepted = sum(int(part.accepted.sum()) for part in parts)
    proposed = sum(int(part.proposed.sum()) for part in parts)
    x = Sequences.join([part.x for part in parts]).select(slice(size))  # rejection draws at least two
    return DistillationRound(x, torch.zeros(0), accepted, proposed, effective=float(size))


@torch.no_grad()
def _resampled(batches: Iterable[Weighted], size: int, generator: Generator) -> DistillationRound:
    """Systematic resampling, which adds the least noise; what it chooses is biased O(1/draws) towards the pool."""
    drawn = Weighted.join(list(batches), one_stream=True)
    log_w = drawn.log_weights.double()
    check_weights(log_w)
    if bool((log_w == -math.inf).all()):
        raise UserError("Every weight of a round is 0: draw from a proposal that looks ahead, or make rounds larger.")
    chosen = systematic(log_w, size, generator)[0]
    shuffled = chosen[torch.randperm(size, generator=generator, device=chosen.device)]  # copies stand side by side
    effective = min(float(effective_sample_size(log_w)[0]), float(size))
    x = drawn.x.select(shuffled)
    if drawn.groups is None:
        return DistillationRound(x, log_w[0], effective=effective)
    return DistillationRound(x, log_w.new_zeros(0), effective=effective, log_z=float(log_mean_exp(log_w)[0]))
