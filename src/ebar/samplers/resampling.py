"""Sampling–importance–resampling."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from ebar.errors import choose
from ebar.maths.log_space import log_mean_exp
from ebar.samplers.draw import log_weights, proposal_for, propose, shares
from ebar.samplers.resample import RESAMPLERS, flat
from ebar.types import Context, Distribution, Target, Weighted, context_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """Of m·n proposals, n are chosen in proportion to w = P/q; all get the weight Ẑ, the mean w of the m·n.

    Properly weighted: given the proposals, E[(1/n)·Σ f(chosen)] = Σⱼ wⱼf(xⱼ) / Σⱼ wⱼ, and Ẑ times this is the
    importance-sampling average (1/mn)·Σⱼ wⱼf(xⱼ), whose mean is Σₓ P(x)·f(x). One batch alone gives draws whose law
    tends to p as its m·n grows; pooled by their weights, batches of any size tend to p. Rubin 1988.
    """

    weighted: ClassVar[bool] = True
    independent: ClassVar[bool] = False  # the draws of a batch share a pool; batches are independent

    proposals_per_draw: int = 16
    resampling: str = "systematic"
    batch_size: int = 65_536
    """Proposals at a time, over all rows of the context."""

    def stream(
        self,
        target: Target,
        n: int,
        *,
        proposal: Distribution | None = None,
        context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:
        proposal = proposal_for(target, proposal)
        resample = choose(RESAMPLERS, self.resampling, "resampling scheme")
        rows = context_rows(context)
        for size in shares(n, context, self.batch_size, proposals_per_draw=self.proposals_per_draw):
            pool = size * self.proposals_per_draw
            x, log_q = propose(proposal, pool, context, generator)
            log_w = log_weights(target, proposal, x, log_q, context).view(rows, pool)
            chosen = flat(resample(log_w, size, generator), pool)
            yield Weighted(x.select(chosen), log_mean_exp(log_w)[:, None].expand(-1, size))
