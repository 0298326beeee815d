"""Drawing from a distribution itself; importance sampling; resampling, and systems of particles that resample.

E[copies of draw i] = n·wᵢ/Σw, whatever the scheme.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.errors import UserError, choose
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.maths.rows import device_of, take
from ebar.samplers.draw import BatchSampler, Setting, group_size, numbered, shares
from ebar.types import Context, Distribution, PointSpace, Weighted, X, context_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestral(BatchSampler):
    """x ~ target, which must be normalised: every weight is 1, as Z is."""

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        target = setting.target
        if not isinstance(target, Distribution):
            points = isinstance(setting.proposal.space, PointSpace)
            how, others = ("", "resampling") if points else (" token by token", "resampling, smc")
            raise UserError(
                f"A tilted model cannot be drawn from{how}, because its normaliser is not known: "
                f"use rejection, importance, {others} or metropolis."
            )
        if setting.proposal is not target:
            raise UserError("Ancestral sampling draws from the target itself: leave the proposal out.")
        for size in shares(n, setting.context, self.batch_size):
            x = target.sample(size, setting.context, generator=setting.generator)
            yield Weighted(x, torch.zeros(setting.rows, size, device=device_of(x)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance(BatchSampler):
    """x ~ q, w = P(x)/q(x). Needs q > 0 where P > 0.

    Unbiased for Z; moments from self-normalised weights are biased O(1/n). The variance is that of w under q:
    when it is large, draw from a proposal that looks ahead, or use smc or annealed.
    """

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        for size in shares(n, setting.context, self.batch_size):
            x, log_q = setting.propose(size)
            yield Weighted(x, setting.log_weights(x, log_q).view(setting.rows, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling(BatchSampler):
    """Of a pool of m·n proposals, n are chosen in proportion to w = P/q; all get the weight Ẑ, the mean w of the m·n.

    Properly weighted: given the proposals, E[(1/n)·Σ f(chosen)] = Σⱼ wⱼf(xⱼ) / Σⱼ wⱼ, and Ẑ times this is the
    importance-sampling average (1/mn)·Σⱼ wⱼf(xⱼ), whose mean is Σₓ P(x)·f(x). One pool alone gives draws whose law
    tends to p as its m·n grows; joined by their weights, pools of any size tend to p. Rubin 1988.

    The draws of one pool depend on one another, so they are a group; there are at least 20 where n allows it.
    """

    proposals_per_draw: Count = 16
    resampling: str = "systematic"
    batch_size: Count = 65_536
    """Proposals at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        return numbered(self._pools(setting, n))

    def _pools(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        resample = choose(RESAMPLERS, self.resampling, "resampling scheme")
        rows, many = setting.rows, self.proposals_per_draw
        for size, pools in particle_systems(
            n, group_size(n), setting.context, self.batch_size, proposals_per_draw=many
        ):
            x, log_q = setting.propose(size * pools * many)
            log_w = setting.log_weights(x, log_q).view(rows * pools, size * many)
            chosen = flat_indices(resample(log_w, size, setting.generator), size * many)
            log_z = log_mean_exp(log_w)[:, None].expand(-1, size)
            yield Weighted(take(x, chosen), log_z.reshape(rows, pools * size), in_groups(pools, size, log_w.device))


def systematic(log_weights: Float[Tensor, "rows pool"], n: int, generator: Generator) -> Int[Tensor, "rows n"]:
    """One uniform offset per row, n evenly spaced points: draw i gets ⌊n·Wᵢ⌋ or ⌈n·Wᵢ⌉ copies. Kitagawa 1996."""
    offset = torch.rand(len(log_weights), generator=generator, dtype=torch.float64, device=log_weights.device)
    return at_offsets(log_weights, n, offset)


def at_offsets(
    log_weights: Float[Tensor, "rows pool"], n: int, offset: Float[Tensor, " rows"]
) -> Int[Tensor, "rows n"]:
    """Systematic resampling with its random numbers given: the points are (offset + i)/n, i < n."""
    return _inverted(log_weights, (offset.double()[:, None] + torch.arange(n, device=offset.device)) / n)


def multinomial(log_weights: Float[Tensor, "rows pool"], n: int, generator: Generator) -> Int[Tensor, "rows n"]:
    """n independent choices per row: noisier than systematic, simpler to reason about."""
    shape = len(log_weights), n
    return _inverted(
        log_weights, torch.rand(shape, generator=generator, dtype=torch.float64, device=log_weights.device)
    )


def _inverted(log_weights: Float[Tensor, "rows pool"], share: Float[Tensor, "rows n"]) -> Int[Tensor, "rows n"]:
    """The first draw at which the cumulated weight exceeds that share, in [0, 1), of the whole.

    In float64: with random numbers of 24 bits a draw of weight 10⁻¹² would be chosen as often as one of 10⁻⁷, and
    float32 sums over a large pool would lose it. A draw of no weight is never chosen.
    """
    cumulated = _weights(log_weights).cumsum(1)
    total = cumulated[:, -1:]
    # Rounding must not push the last point past the last draw that has any weight.
    points = torch.minimum(share * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, points, right=True)


def _weights(log_weights: Float[Tensor, "rows pool"]) -> Float[Tensor, "rows pool"]:
    """Weights whose largest is 1; equal ones where all are 0, which stays unbiased since the estimate of Z is 0."""
    log_weights = log_weights.double()
    largest = log_weights.max(1, keepdim=True).values
    return torch.where(largest == -math.inf, 1.0, torch.exp(log_weights - largest))


Resampler = Callable[[Float[Tensor, "rows pool"], int, Generator], Int[Tensor, "rows n"]]

RESAMPLERS: dict[str, Resampler] = {"systematic": systematic, "multinomial": multinomial}


def flat_indices(chosen: Int[Tensor, "rows n"], pool: int) -> Int[Tensor, " all"]:
    """Choices within each row as indices into all rows laid end to end."""
    offset = torch.arange(len(chosen), device=chosen.device) * pool
    return (chosen + offset[:, None]).flatten()


def particle_systems(
    n: int, particles: int, context: Context | None, batch_size: int, *, proposals_per_draw: int = 1
) -> Iterator[tuple[int, int]]:
    """(size, how many at a time): n draws per row as independent systems of at most `particles`, even in size.

    Only whole systems are properly weighted, so they add up to n exactly.
    """
    rows = context_rows(context) * proposals_per_draw
    sizes = shares(n, context, min(batch_size, particles * rows), proposals_per_draw=proposals_per_draw)
    for size, group in itertools.groupby(sizes):
        count = len(list(group))
        at_once = batch_size // (size * rows)
        while count:
            yield size, min(count, at_once)
            count -= min(count, at_once)


def in_groups(count: int, size: int, device: torch.device) -> Int[Tensor, " draws"]:
    """The group numbers of `count` systems of `size` draws, one after the other."""
    return torch.arange(count, device=device).repeat_interleave(size)


def repeated(context: Context | None, times: int) -> Context | None:
    """Every row of the context once for each of its systems."""
    return None if context is None else context.repeat(times)


def resampled(
    log_weights: Float[Tensor, "systems particles"], threshold: float, resample: Resampler, generator: Generator
) -> tuple[Int[Tensor, "systems particles"], Float[Tensor, "systems particles"]] | None:
    """Ancestors and new weights where the effective sample size has fallen below its share; None where nowhere.

    A resampled system's particles all carry its mean weight, so that E[Σ w·f] is what it was: whether to resample
    may depend on the weights without biasing Z. Systems that keep their particles are their own ancestors.
    """
    low = effective_sample_size(log_weights) < threshold * log_weights.shape[1]
    if not bool(low.any()):
        return None
    ancestors = torch.arange(log_weights.shape[1], device=low.device).repeat(len(low), 1)
    ancestors[low] = resample(log_weights[low], log_weights.shape[1], generator)
    mean = log_mean_exp(log_weights)[:, None]
    return ancestors, torch.where(low[:, None], mean, log_weights)
