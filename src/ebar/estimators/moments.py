"""E_p[φ]: from weighted draws, from equally weighted ones, and from chains."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.draws import Units, read
from ebar.estimators.log_z import FEWEST_BATCHES
from ebar.features.feature import Features
from ebar.maths.importance import SMALLEST_SAMPLE, all_warnings, check_weights, diagnose, unseen_side
from ebar.maths.jackknife import half_width, log_rest
from ebar.maths.log_space import effective_sample_size, normalised
from ebar.maths.proportions import wilson
from ebar.types import Context, Estimate, Weighted

FEWEST_SEGMENTS = 30


def moments(
    draws: Weighted | Iterable[Weighted],
    features: Features,
    *,
    target: object = None,
    context: Context | None = None,
    independent: bool = True,
    level: float = 0.95,
) -> list[list[Estimate]]:
    """E_p[φ | C] for each row of the context and each feature, from draws or from a sampler's stream of them.

    `target` and `independent` are as for `log_z`. One draw's weights tell all features: read once, ask all.
    """
    return moments_of(
        read(draws, features=features, target=target, context=context, independent=independent), features, level=level
    )


def moments_of(units: Units, features: Features, *, level: float = 0.95) -> list[list[Estimate]]:
    """Moments of units already read."""
    columns = [
        weighted_mean(
            units.log_weights,
            units.values[:, :, column],
            low=float(feature.low),
            high=float(feature.high),
            name=feature.name,
            batches=units.sizes is not None,
            level=level,
        )
        for column, feature in enumerate(features.features)
    ]
    return [
        [estimate._replace(warning=all_warnings(estimate.warning, unseen)) for estimate in row]
        for row, unseen in zip(zip(*columns, strict=True), units.unseen, strict=True)
    ]


def weighted_mean(
    log_weights: Float[Tensor, "rows draws"],
    values: Float[Tensor, "rows draws"],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    name: str = "value",
    batches: bool = False,
    level: float = 0.95,
) -> list[Estimate]:
    """Σwφ / Σw for each row: self-normalised, so biased O(1/n), and its jackknife interval.

    Of values at two ends only (a binary feature) the interval is made on the logit scale, where it stays inside
    (0, 1) and covers rare features too. A feature of which one side was never drawn warns, and gets Wilson's
    interval for the effective sample size in place of a point: that is the least that is not known.
    `low` and `high` are the range of φ; independent batches in place of draws have values of their own means.
    """
    check_weights(log_weights)
    values = values.double()
    shares = normalised(log_weights.double())  # NaN, and so is the mean, where there is no weight at all
    means = (shares * values).sum(-1).clamp(values.amin(-1), values.amax(-1))  # rounding may step outside
    widths = half_width((means[:, None] - values) * shares / log_rest(log_weights).exp(), level)
    sizes = effective_sample_size(log_weights.double())
    binary = ((values == low) | (values == high)).all(-1)
    reasons = [_too_few(log_weights.shape[1])] * len(means) if batches else diagnose(log_weights, values)
    found = []
    for row, reason in enumerate(reasons):
        mean, width, size = float(means[row]), float(widths[row]), float(sizes[row])
        unseen = unseen_side(name, float(values[row].min()), float(values[row].max()), low, high)
        if size == 0:
            interval = (low, high)
        elif unseen is not None and low > -math.inf and high < math.inf:
            share = (mean - low) / (high - low)
            interval = _rescaled(wilson(share * size, size, level), low, high)
        elif bool(binary[row]) and low < mean < high:
            interval = _on_logit_scale(mean, width, low, high)
        else:
            interval = max(low, mean - width), min(high, mean + width)
        found.append(Estimate(mean, *interval, size, all_warnings(reason, unseen), level))
    return found


def chain_mean(
    values: Float[Tensor, "chains steps"],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    name: str = "value",
    level: float = 0.95,
) -> Estimate:
    """The mean over Markov chains, whose draws depend on each other.

    Chains are independent, so each is one unit; where there are fewer than 30, each is cut into as many long segments
    as make 30 units (Schmeiser 1982). A segment must be long against the autocorrelation time, and every
    chain past its burn-in: neither can be seen from here, but segments that disagree show in the effective size.
    """
    chains, steps = values.shape
    segments = min(steps, max(1, -(-FEWEST_SEGMENTS // chains)))
    length = steps // segments
    units = values.double()[:, : segments * length].reshape(1, chains * segments, length).mean(-1)
    width = float(half_width(units / (units.shape[1] - 1), level)[0]) if units.shape[1] > 1 else math.inf
    spread, error = float(values.double().var(unbiased=False)), float(units.var(unbiased=False)) / units.shape[1]
    size = min(float(values.numel()), spread / error) if error > 0 else float(values.numel())
    reason = None if size >= SMALLEST_SAMPLE else f"{values.numel():,} dependent draws are worth only {size:.1f}"
    unseen = unseen_side(name, float(values.min()), float(values.max()), low, high)
    value = float(values.double().mean())
    interval = max(low, value - width), min(high, value + width)
    if unseen is not None and low > -math.inf and high < math.inf:
        interval = _rescaled(wilson((value - low) / (high - low) * size, size, level), low, high)
    return Estimate(value, *interval, size, all_warnings(reason, unseen), level)


def _on_logit_scale(mean: float, width: float, low: float, high: float) -> tuple[float, float]:
    share = (mean - low) / (high - low)
    slope = width / ((high - low) * share * (1 - share))
    centre = math.log(share) - math.log1p(-share)
    ends = torch.sigmoid(torch.tensor([centre - slope, centre + slope], dtype=torch.float64)).tolist()
    return _rescaled((ends[0], ends[1]), low, high)


def _rescaled(interval: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    return low + (high - low) * interval[0], low + (high - low) * interval[1]


def _too_few(batches: int) -> str | None:
    if batches >= FEWEST_BATCHES:
        return None
    return f"only {batches} independent batches: the interval needs {FEWEST_BATCHES} or more"
