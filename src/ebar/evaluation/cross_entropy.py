"""How well a model predicts data: nats per sequence and per token, with intervals over the data."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.models import Model
from ebar.estimators.moments import weighted_mean
from ebar.maths.importance import all_warnings
from ebar.models.scoring import score
from ebar.progress import bar
from ebar.types import Context, Distribution, Estimate, Sequences

BATCH = 1024  # sequences scored at once


class CrossEntropy(NamedTuple):
    """−log p of data, in nats, three ways. Intervals are over the draw of the data set, sequences being independent.

    `per_token` is the mean over sequences of NLL/length, the end token counted: what the GAM authors report.
    `pooled_per_token` is total NLL over total length, whose exponential is the usual perplexity.
    """

    per_sequence: Estimate
    per_token: Estimate
    pooled_per_token: Estimate

    @property
    def perplexity(self) -> Estimate:
        """exp of the pooled figure, ends and all."""
        pooled = self.pooled_per_token
        return pooled._replace(value=_exp(pooled.value), low=_exp(pooled.low), high=_exp(pooled.high))


def cross_entropy(
    model: Model, data: Sequences, *, context: Context | None = None, log_z: Estimate | None = None
) -> CrossEntropy:
    """The cross-entropy of data under a model; an unnormalised one needs its log Z (of the one condition it is in).

    log Z was estimated from other draws than the data, so its error and theirs add in quadrature. A sequence the
    model cannot make costs infinitely much, and so does the mean.
    """
    if isinstance(model, Distribution) == (log_z is not None):
        raise ValueError("an unnormalised model needs log_z, and a normalised one has none")
    costs = negative_log_scores(model, data, context)[None]
    lengths = data.lengths.to(costs)[None]
    equal = torch.zeros_like(costs)
    log_z = log_z or Estimate.exact(0.0)
    return CrossEntropy(
        _plus(weighted_mean(equal, costs)[0], log_z, 1.0),
        _plus(weighted_mean(equal, costs / lengths)[0], log_z, float((1 / lengths).mean())),
        # Total over total is the mean of cost per token, each sequence weighted by its length.
        _plus(weighted_mean(lengths.log(), costs / lengths)[0], log_z, float(1 / lengths.mean())),
    )


def cross_entropy_difference(
    model: Distribution, other: Distribution, data: Sequences, *, context: Context | None = None
) -> Estimate:
    """Cost per token of a model minus that of another, total over total; the interval is over sequences, paired."""
    costs = (negative_log_scores(model, data, context) - negative_log_scores(other, data, context))[None]
    lengths = data.lengths.to(costs)[None]
    return weighted_mean(lengths.log(), costs / lengths)[0]


@torch.no_grad()
def negative_log_scores(model: Model, data: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
    """−log_prob (or −log_score) of each sequence, in float64; a context has one row for each."""
    total = len(data.lengths)
    parts = []
    with bar("scoring", total, "sequences") as progress:
        for start in range(0, total, BATCH):
            rows = torch.arange(start, min(start + BATCH, total), device=data.lengths.device)
            own = None if context is None else context.select(rows)
            parts.append(-score(model, data.select(rows), own).double())
            progress.advance(len(rows))
    return torch.cat(parts)


def _plus(cost: Estimate, log_z: Estimate, share: float) -> Estimate:
    value = cost.value + share * log_z.value
    if not math.isfinite(value):
        reason = "a sequence has no chance under the model, so the mean cost is infinite: relax its constraints"
        return cost._replace(value=value, low=value, high=value, warning=all_warnings(cost.warning, reason))
    down = math.hypot(cost.value - cost.low, share * (log_z.value - log_z.low))
    up = math.hypot(cost.high - cost.value, share * (log_z.high - log_z.value))
    return cost._replace(
        value=value, low=value - down, high=value + up, warning=all_warnings(cost.warning, log_z.warning)
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
