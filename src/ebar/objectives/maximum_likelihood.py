"""Maximum likelihood: the cross-entropy between the data and a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Generator

from ebar.errors import choose
from ebar.types import Clock, Context, Distribution, Loss, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumLikelihood:
    """−Σᵢ log q(xᵢ|Cᵢ) / Σᵢ |xᵢ|, the mean over tokens; with `per="sequence"`, over sequences.

    Over the whole data both have one optimum, q = data: the denominator does not depend on q. Over a
    mini-batch they differ: per token the ratio is biased by O(1/batch), and its value compares across batches.
    A sequence the model gives no chance has an infinite loss: the loop stops there and keeps the batch.
    """

    model: Distribution
    per: Literal["token", "sequence"] = "token"
    player: str = "model"

    def losses(
        self, batch: Sequences | tuple[Sequences, Context | None], clock: Clock, *, generator: Generator
    ) -> Iterator[Loss]:
        x, context = (batch, None) if isinstance(batch, Sequences) else batch
        terms = choose({"token": int(x.lengths.sum()), "sequence": len(x.lengths)}, self.per, "unit of a mean")
        value = -self.model.log_prob(x, context).sum() / terms
        yield Loss(value, self.player, {f"nll_per_{self.per}": float(value.detach())}, weight=float(terms))
