"""Figures that depend on a seed and on test items which all seeds share: both errors belong in the interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """A value with its ends."""

    value: float
    low: float
    high: float


def over_items(sums: Sequence[float], sizes: Sequence[float]) -> Interval:
    """Σ sums / Σ sizes, say nats per token, with Student's interval over the items, linearised as for any ratio."""
    from scipy.stats import t

    count, total = len(sums), math.fsum(sizes)
    ratio = math.fsum(sums) / total
    if count < 2:
        return Interval(ratio, -math.inf, math.inf)
    squares = math.fsum((one - ratio * size) ** 2 for one, size in zip(sums, sizes, strict=True))
    width = float(t.ppf(0.975, count - 1)) * math.sqrt(squares * count / (count - 1)) / total
    return Interval(ratio, ratio - width, ratio + width)


def over_seeds_alone(values: Sequence[float]) -> Interval:
    """The mean with Student's interval over seeds."""
    return over_items(values, [1.0] * len(values))


def together(*parts: Interval) -> Interval:
    """The value of the first, with the errors of all: each side's lengths as legs of a right angle.

    For independent errors that is the square root of the sum of the variances, each with its own quantile (MOVER:
    Zou and Donner 2008). What varies with seed and item at once is in both parts, so the interval errs on the wide
    side.
    """
    value = parts[0].value
    low = math.sqrt(math.fsum((part.value - part.low) ** 2 for part in parts))
    high = math.sqrt(math.fsum((part.high - part.value) ** 2 for part in parts))
    return Interval(value, value - low, value + high)


def crossed(sums: Sequence[Sequence[float]], sizes: Sequence[float]) -> Interval:
    """The mean over seeds of Σ sums / Σ sizes, from a row of items for each seed: for other seeds and other items."""
    total = math.fsum(sizes)
    means = [math.fsum(row[item] for row in sums) / len(sums) for item in range(len(sizes))]
    items = over_items(means, sizes)
    if len(sums) == 1:
        return items
    return together(over_seeds_alone([math.fsum(row) / total for row in sums]), items)
