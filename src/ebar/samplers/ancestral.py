"""Drawing from a distribution itself, token by token."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ebar.bounds import Count
from ebar.errors import UserError
from ebar.samplers.draw import BatchSampler, Setting, shares
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
