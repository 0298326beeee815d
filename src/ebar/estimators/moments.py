"""E_p[φ] from weighted draws, whether independent or not."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.estimators.draws import Units, few_groups, read_units
from ebar.features.feature import Feature, Features
from ebar.maths.importance import SMALLEST_SAMPLE, all_warnings, check_weights, diagnose, unseen_side
from ebar.maths.jackknife import half_width, log_rest, variance
from ebar.maths.log_space import effective_sample_size, normalised
from ebar.maths.proportions import wilson
from ebar.models.tilted import bound_features
from ebar.types import Context, Estimate, Weighted, X


def moments(
    draws: Weighted[X] | Iterable[Weighted[X]],
    features: Features[X] | Sequence[Feature[X]],
    *,
    target: object = None,
    context: Context | None = None,
    level: float = 0.95,
) -> list[list[Estimate]]:
    """E_p[φ | C] for each row of the context and each feature, from draws or from a sampler's stream of them.

    As for `log_z`, the interval is over what is independent. One draw's weights tell all features: read once, ask all.
    Features that are not bound to tokens yet are bound as the target's model reads its own.
    """
    if not isinstance(features, Features):
        batches: Iterator[Weighted[Any]] = iter([draws] if isinstance(draws, Weighted) else draws)
        first = list(islice(batches, 1))
        draws = chain(first, batches)
        features = bound_features(features, first[0].target if first and target is None else target)
    return moments_of(read_units(draws, features=features, target=target, context=context), features, level=level)


def moments_of(units: Units, features: Features[Any], *, level: float = 0.95) -> list[list[Estimate]]:
    """Moments of units already read."""
    columns = [
        weighted_mean(
            units.log_weights,
            units.values[:, :, column],
            low=float(feature.low),
            high=float(feature.high),
            name=feature.name,
            batches=units.sizes is not None,
            two_valued=units.two_valued[:, column],
            strata=units.strata,
            level=level,
        )
        for column, feature in enumerate(features.features)
    ]
    if units.sizes is not None:
        columns = [
            [_in_draws(found, units, row, column) for row, found in enumerate(estimates)]
            for column, estimates in enumerate(columns)
        ]
    return [
        [estimate._replace(warning=all_warnings(estimate.warning, unseen)) for estimate in row]
        for row, unseen in zip(zip(*columns, strict=True), units.unseen, strict=True)
    ]


def feature_means(
    log_weights: Float[Tensor, " draws"], values: Float[Tensor, "draws features"], features: Features[Any], level: float
) -> list[Estimate]:
    """The mean of each feature over independent weighted draws."""
    found = []
    for column, feature in zip(values.unbind(1), features.features, strict=True):
        low, high = float(feature.low), float(feature.high)
        found += weighted_mean(log_weights[None], column[None], low=low, high=high, name=feature.name, level=level)
    return found


def means_by_name(
    values: Float[Tensor, "draws features"], features: Features[Any], log_weights: Float[Tensor, " draws"] | None = None
) -> dict[str, Estimate]:
    """The mean of each feature over draws that are independent: weighted, or without weights the plain mean."""
    weights = torch.zeros(len(values), dtype=torch.float64) if log_weights is None else log_weights
    return dict(zip(features.names, feature_means(weights, values, features, 0.95), strict=True))


def _in_draws(found: Estimate, units: Units, row: int, column: int) -> Estimate:
    """How many independent draws would know the mean as well as these groups of draws do."""
    spread, left_out = float(units.spread[row, column]), _left_out(units.log_weights[row], units.values[row, :, column])
    error = float(variance(left_out)[0])
    size = min(float(units.draws), spread / error) if error > 0 else found.effective_sample_size
    few = f"{units.draws:,} draws that depend on one another have an effective sample size of only {size:.1f}"
    reason = few if size < SMALLEST_SAMPLE and found.effective_sample_size > 0 else None
    return found._replace(effective_sample_size=size, warning=all_warnings(found.warning, reason))


def _left_out(log_weights: Float[Tensor, "*rows draws"], values: Float[Tensor, "*rows draws"]) -> Tensor:
    """How far the weighted mean moves when one draw is left out."""
    shares = normalised(log_weights.double())
    means = (shares * values).sum(-1, keepdim=True)
    return (means - values) * shares / log_rest(log_weights).exp()


def weighted_mean(
    log_weights: Float[Tensor, "rows draws"],
    values: Float[Tensor, "rows draws"],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    name: str = "value",
    batches: bool = False,
    two_valued: Bool[Tensor, " rows"] | None = None,
    strata: Int[Tensor, " draws"] | None = None,
    level: float = 0.95,
) -> list[Estimate]:
    """Σwφ / Σw for each row: self-normalised, so biased O(1/n), and its jackknife interval.

    Of values at two ends only (a binary feature) the interval is made on the logit scale, where it stays inside
    (0, 1) and covers rare features too. A feature of which one side was never drawn warns, and gets Wilson's
    interval for the effective sample size in place of a point: that is the least that is not known.
    `low` and `high` are the range of φ; independent batches in place of draws have values of their own means, and
    `two_valued` tells of the draws within them. `strata`: which law each draw came from, where there are several.
    """
    check_weights(log_weights)
    values = values.double()
    shares = normalised(log_weights.double())  # NaN, and so is the mean, where there is no weight at all
    means = (shares * values).sum(-1).clamp(values.amin(-1), values.amax(-1))  # rounding may step outside
    widths = half_width(_left_out(log_weights, values), level, strata=strata)
    sizes = effective_sample_size(log_weights.double())
    binary = ((values == low) | (values == high)).all(-1) if two_valued is None else two_valued
    reasons = [few_groups(log_weights.shape[1])] * len(means) if batches else diagnose(log_weights, values)
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


def _on_logit_scale(mean: float, width: float, low: float, high: float) -> tuple[float, float]:
    share = (mean - low) / (high - low)
    slope = width / ((high - low) * share * (1 - share))
    centre = math.log(share) - math.log1p(-share)
    ends = torch.sigmoid(torch.tensor([centre - slope, centre + slope], dtype=torch.float64)).tolist()
    return _rescaled((ends[0], ends[1]), low, high)


def _rescaled(interval: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    return low + (high - low) * interval[0], low + (high - low) * interval[1]
