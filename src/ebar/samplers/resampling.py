"""Sampling–importance–resampling."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from ebar.bounds import Count
from ebar.errors import choose
from ebar.maths.log_space import log_mean_exp
from ebar.models.scoring import propose
from ebar.samplers.draw import group_size, log_weights, numbered, proposal_for
from ebar.samplers.resample import RESAMPLERS, flat
from ebar.samplers.systems import in_groups, systems
from ebar.types import Context, Distribution, Target, Weighted, context_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """Of a pool of m·n proposals, n are chosen in proportion to w = P/q; all get the weight Ẑ, the mean w of the m·n.

    Properly weighted: given the proposals, E[(1/n)·Σ f(chosen)] = Σⱼ wⱼf(xⱼ) / Σⱼ wⱼ, and Ẑ times this is the
    importance-sampling average (1/mn)·Σⱼ wⱼf(xⱼ), whose mean is Σₓ P(x)·f(x). One pool alone gives draws whose law
    tends to p as its m·n grows; joined by their weights, pools of any size tend to p. Rubin 1988.

    The draws of one pool depend on one another, so they are a group; there are at least 20 where n allows it.
    """

    weighted: ClassVar[bool] = True

    proposals_per_draw: Count = 16
    resampling: str = "systematic"
    batch_size: Count = 65_536
    """Proposals at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        return numbered(self._pools(target, n, proposal_for(target, proposal), context, generator))

    def _pools(
        self, target: Target, n: int, proposal: Distribution, context: Context | None, generator: Generator
    ) -> Iterator[Weighted]:
        resample = choose(RESAMPLERS, self.resampling, "resampling scheme")
        rows = context_rows(context)
        many = self.proposals_per_draw
        for size, pools in systems(n, group_size(n), context, self.batch_size, proposals_per_draw=many):
            x, log_q = propose(proposal, size * pools * many, context, generator)
            log_w = log_weights(target, proposal, x, log_q, context).view(rows * pools, size * many)
            chosen = flat(resample(log_w, size, generator), size * many)
            log_z = log_mean_exp(log_w)[:, None].expand(-1, size)
            yield Weighted(x.select(chosen), log_z.reshape(rows, pools * size), in_groups(pools, size, log_w.device))
