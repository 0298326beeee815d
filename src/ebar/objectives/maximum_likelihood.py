"""Maximum likelihood: the cross-entropy between the data and a model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import UserError, choose
from ebar.models.stepwise import belongs, teacher_forced
from ebar.objectives.token_scores import TokenScores, token_scores
from ebar.types import Clock, Context, Distribution, Loss, Sequences, Space, Stepwise

Batch = Sequences | tuple[Sequences, Context | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumLikelihood:
    """−Σᵢ log q(xᵢ|Cᵢ) / Σᵢ |xᵢ|, the mean over tokens; with `per="sequence"`, over sequences.

    Over the whole data both have one optimum, q = data: the denominator does not depend on q. Over a
    mini-batch they differ: per token the ratio is biased by O(1/batch), and its value compares across batches.
    A sequence the model gives no chance has an infinite loss: the loop stops there and keeps the batch.
    """

    model: Distribution
    per: Literal["token", "sequence"] = "token"
    label_smoothing: float = 0.0
    """Share of each token's target that is spread evenly over the vocabulary; figures are without it."""
    player: str = "model"

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing)

    @property
    def validation(self) -> "MaximumLikelihood":
        """What held-out data is measured by."""
        return MaximumLikelihood(model=self.model, per=self.per, player=self.player)

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        x, context = parted(batch)
        terms = choose({"token": int(x.lengths.sum()), "sequence": len(x.lengths)}, self.per, "unit of a mean")
        if isinstance(self.model, Stepwise):
            space = self.model.space.after(context)
            safe = inside(x, space)
            logits = teacher_forced(self.model, safe.tokens, context)
            scores = token_scores(logits, safe.tokens, mean=self.label_smoothing > 0)
            nll, loss = cross_entropy(scores, x, space, self.label_smoothing)
        elif self.label_smoothing > 0:
            raise UserError(f"{type(self.model).__name__} shows no token's distribution, so no label can be smoothed.")
        else:
            nll = loss = -self.model.log_prob(x, context).sum()
        value = loss / terms
        yield Loss(value, self.player, {f"nll_per_{self.per}": float(nll.detach() / terms)}, weight=float(terms))


def parted(batch: Batch) -> tuple[Sequences, Context | None]:
    """A batch as sequences and what they are conditional on."""
    return (batch, None) if isinstance(batch, Sequences) else batch


def inside(x: Sequences, space: Space) -> Sequences:
    """The part that a model of this space can read: padding may hold anything, a token outside the vocabulary too."""
    width = min(x.tokens.shape[1], space.length)
    return Sequences(torch.where(x.mask(), x.tokens, 0)[:, :width], x.lengths.clamp(max=width))


def cross_entropy(
    scores: TokenScores, x: Sequences, space: Space, label_smoothing: float = 0.0
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """−Σ log q over all tokens, as it is and smoothed; infinite where a row is no sequence of the space.

    Smoothed, a token costs (1 − ε)·(−log q) + ε·(mean over the allowed vocabulary of −log q). Szegedy et al. 2016.
    """
    mask = x.mask()[:, : scores.logit.shape[1]]
    plain = torch.where(mask, -scores.log_prob, 0.0).sum(1)
    nll = torch.where(belongs(x, space), plain, math.inf).sum()
    if label_smoothing == 0:
        return nll, nll
    uniform = torch.where(mask, scores.log_partition - scores.mean, 0.0).sum()
    return nll, (1 - label_smoothing) * nll + label_smoothing * uniform


def check_smoothing(label_smoothing: float) -> None:
    """At 1 nothing of the data would be left."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing}")
