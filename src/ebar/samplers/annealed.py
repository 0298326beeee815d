"""Annealed sequential Monte Carlo: from the proposal to the target over bridging temperatures."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.bounds import Amount, Count
from ebar.errors import UserError, choose
from ebar.samplers.draw import BatchSampler, Setting, begin, group_size, numbered, shares
from ebar.samplers.importance import RESAMPLERS, flat_indices, in_groups, particle_systems, repeated, resampled
from ebar.samplers.metropolis import BY_DEFAULT, moves_in, step
from ebar.types import PointSpace, Weighted, X

SMALLEST_RISE = 1e-4  # a ladder has at most ten thousand rungs


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed(BatchSampler):
    """Particles from q pass through q·w^β, β rising from 0 to 1 and w = P/q (so q·e^(−βE) when q is the base).

    At each rung weights take on w^(Δβ), a system whose effective sample size has fallen below `threshold` resamples,
    and Metropolis moves that leave q·w^β invariant let particles find where the next rung needs them. For when plain
    importance sampling collapses. Neal 2001; Del Moral, Doucet & Jasra 2006.

    Unbiased for Z given the ladder. A ladder adapted to the very particles it then weighs would bias Z, so where none
    is given it is chosen on a pilot system, for each row of the context, and then kept: each rung is the largest
    step that leaves `conditional_size` of the conditional effective sample size (Zhou, Johansen & Aston 2016).
    """

    particles: Count = 256
    """In each system; fewer where n draws would make fewer than 20 systems, which an interval needs."""
    threshold: float = 0.5
    ladder: tuple[float, ...] = ()
    """Rising to 1, the 0 left out; empty: chosen on a pilot."""
    conditional_size: float = 0.9
    moves: tuple[str, ...] = BY_DEFAULT
    """Those of `Metropolis`."""
    step_size: Amount | None = None
    """Of moves of points, in the units of x; they need one, since a step size found on the particles would bias Z."""
    moves_per_rung: int = 2
    resampling: str = "systematic"
    batch_size: Count = 4096
    """Particles at a time, over all systems and rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        if isinstance(setting.proposal.space, PointSpace) and self.step_size is None and self.moves != ("independent",):
            raise UserError("Annealing of points moves them by a step_size: give one, in the units of x.")
        if "unadjusted_langevin" in self.moves:
            raise UserError("Annealing needs moves that leave P as it is, which unadjusted ones do not: use langevin.")
        return numbered(self._systems(setting, n))

    def _systems(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        context, rows = setting.context, setting.rows
        ladder = self._given(rows) if self.ladder else self._pilot(setting, rows)
        for size, count in particle_systems(n, min(self.particles, group_size(n)), context, self.batch_size):
            run = _Run(self, setting._replace(context=repeated(context, count)), size, rows * count)
            for power in ladder.repeat_interleave(count, 1):
                run.climb(power.to(run.log_w))
            yield Weighted(run.walkers.x, run.log_w.view(rows, count * size), in_groups(count, size, run.log_w.device))

    def _given(self, rows: int) -> Float[Tensor, "rungs rows"]:
        rungs = torch.tensor(self.ladder, dtype=torch.float64)
        if self.ladder[-1] != 1 or self.ladder[0] <= 0 or bool((rungs.diff() <= 0).any()):
            raise UserError(f"A ladder of temperatures must rise from above 0 to 1, unlike {list(self.ladder)}.")
        return rungs[:, None].expand(-1, rows)

    def _pilot(self, setting: Setting[Any], rows: int) -> Float[Tensor, "rungs rows"]:
        size = min(self.particles, max(shares(self.particles, setting.context, self.batch_size)))
        run = _Run(self, setting, size, rows)
        rungs: list[Tensor] = []
        while not rungs or bool((rungs[-1] < 1).any()):
            rungs.append(
                next_rung(run.power, run.log_w, run.walkers.log_weight.view(rows, size), self.conditional_size)
            )
            run.climb(rungs[-1])
        return torch.stack(rungs).double()


class _Run(Generic[X]):
    """Systems on their way up the ladder."""

    def __init__(self, sampler: Annealed, setting: Setting[X], size: int, count: int):
        self.sampler, self.setting = sampler, setting
        self.resample = choose(RESAMPLERS, sampler.resampling, "resampling scheme")
        self.moves = itertools.cycle(moves_in(sampler.moves, setting.proposal.space, sampler.step_size))
        self.walkers = begin(setting, size if setting.context is not None else size * count)
        self.log_w = torch.zeros_like(self.walkers.log_weight).view(count, size)
        self.power = torch.zeros_like(self.log_w[:, 0])

    @torch.no_grad()
    def climb(self, power: Float[Tensor, " systems"]) -> None:
        """Weigh, resample, and move at the new power, which leaves the weights alone."""
        count, size = self.log_w.shape
        rise = (power - self.power)[:, None]
        # A system already at the top does not rise; 0·(−inf) is 0 there.
        self.log_w = self.log_w + torch.where(rise > 0, rise * self.walkers.log_weight.view(count, size), 0.0)
        self.power = power
        if bool((power == 1).all()):
            return
        outcome = resampled(self.log_w, self.sampler.threshold, self.resample, self.setting.generator)
        if outcome is not None:
            ancestors, self.log_w = outcome
            self.walkers = self.walkers.select(flat_indices(ancestors, size))
        each = power.repeat_interleave(size)
        for move in itertools.islice(self.moves, self.sampler.moves_per_rung):
            self.walkers, _ = step(self.walkers, move, self.setting, each)


def next_rung(
    power: Float[Tensor, " systems"],
    log_w: Float[Tensor, "systems particles"],
    log_ratio: Float[Tensor, "systems particles"],
    conditional_size: float,
) -> Float[Tensor, " systems"]:
    """The largest power whose conditional effective sample size, (Σ W·v)² / Σ W·v² with v = w^Δ, is large enough.

    Particles of weight 0 die at the first rung whatever its height, so they have no say in it.
    """
    alive = (log_ratio > -math.inf) & (log_w > -math.inf)
    weight = torch.where(alive, log_w, -math.inf)
    ratio = torch.where(alive, log_ratio, 0.0)
    total = torch.logsumexp(weight, 1)
    low, high = torch.zeros_like(power), 1 - power
    rise = high  # try the whole way first
    for _ in range(25):
        moved = torch.logsumexp(weight + rise[:, None] * ratio, 1)
        squared = torch.logsumexp(weight + 2 * rise[:, None] * ratio, 1)
        # NaN where no particle is alive: nothing can be learnt, and the comparison lets it go all the way.
        enough = ~(torch.exp(2 * moved - squared - total) < conditional_size)
        low, high = torch.where(enough, rise, low), torch.where(enough, high, rise)
        rise = (low + high) / 2
    return torch.where(low >= 1 - power, 1.0, power + low.clamp(min=SMALLEST_RISE)).clamp(max=1.0)
