"""Drawing from a distribution itself; importance sampling, and resampling of what it draws."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ebar.bounds import Count
from ebar.errors import UserError, choose
from ebar.maths.log_space import log_mean_exp
from ebar.samplers.draw import BatchSampler, Setting, group_size, numbered, shares
from ebar.samplers.resample import RESAMPLERS, flat_indices, in_groups, particle_systems
from ebar.types import Distribution, Weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestral(BatchSampler):
    """x ~ target, which must be normalised: every weight is 1, as Z is."""

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        target = setting.target
        if not isinstance(target, Distribution):
            raise UserError(
                "A tilted model cannot be drawn from token by token, because its normaliser is not known: "
                "use rejection, importance, resampling, smc or metropolis."
            )
        if setting.proposal is not target:
            raise UserError("Ancestral sampling draws from the target itself: leave the proposal out.")
        for size in shares(n, setting.context, self.batch_size):
            x = target.sample(size, setting.context, generator=setting.generator)
            yield Weighted(x, torch.zeros(setting.rows, size, device=x.tokens.device))


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance(BatchSampler):
    """x ~ q, w = P(x)/q(x). Needs q > 0 where P > 0.

    Unbiased for Z; moments from self-normalised weights are biased O(1/n). The variance is that of w under q:
    when it is large, draw from a proposal that looks ahead, or use smc or annealed.
    """

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
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

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        return numbered(self._pools(setting, n))

    def _pools(self, setting: Setting, n: int) -> Iterator[Weighted]:
        resample = choose(RESAMPLERS, self.resampling, "resampling scheme")
        rows, many = setting.rows, self.proposals_per_draw
        for size, pools in particle_systems(
            n, group_size(n), setting.context, self.batch_size, proposals_per_draw=many
        ):
            x, log_q = setting.propose(size * pools * many)
            log_w = setting.log_weights(x, log_q).view(rows * pools, size * many)
            chosen = flat_indices(resample(log_w, size, setting.generator), size * many)
            log_z = log_mean_exp(log_w)[:, None].expand(-1, size)
            yield Weighted(x.select(chosen), log_z.reshape(rows, pools * size), in_groups(pools, size, log_w.device))
