"""Drawing from a distribution itself, token by token."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.errors import UserError
from ebar.samplers.draw import shares
from ebar.types import Context, Distribution, Target, Weighted, context_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestral:
    """x ~ target, which must be normalised: every weight is 1, as Z is."""

    weighted: ClassVar[bool] = True

    batch_size: Count = 4096
    """Sequences at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        if not isinstance(target, Distribution):
            raise UserError(
                "A tilted model cannot be drawn from token by token, because its normaliser is not known: "
                "use rejection, importance, resampling, smc or metropolis."
            )
        if proposal is not None and proposal is not target:
            raise UserError("Ancestral sampling draws from the target itself: leave the proposal out.")
        for size in shares(n, context, self.batch_size):
            x = target.sample(size, context, generator=generator)
            zeros = torch.zeros(context_rows(context), size, device=x.tokens.device)
            yield Weighted(x, zeros)
