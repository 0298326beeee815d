"""Figures that depend on a seed and on test items which all seeds share: both errors belong in the interval."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ebar.recipes.recipe import Row
from ebar.types import Estimate

Sizes = Sequence[int] | Sequence[float]  # of the items, say how many tokens each has


class Interval(NamedTuple):
    """A value with its ends."""

    value: float
    low: float
    high: float


def over_items(sums: Sequence[float], sizes: Sizes) -> Interval:
    """Σ sums / Σ sizes, say nats per token, with Student's interval over the items, linearised as for any ratio."""
    count, total = len(sums), math.fsum(sizes)
    ratio = math.fsum(sums) / total
    if count < 2:
        return Interval(ratio, -math.inf, math.inf)
    squares = math.fsum((one - ratio * size) ** 2 for one, size in zip(sums, sizes, strict=True))
    width = _student(count - 1) * math.sqrt(squares * count / (count - 1)) / total
    return Interval(ratio, ratio - width, ratio + width)


@cache
def _student(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


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


def crossed(sums: Sequence[Sequence[float]], sizes: Sizes) -> Interval:
    """The mean over seeds of Σ sums / Σ sizes, from a row of items for each seed: for other seeds and other items."""
    total = math.fsum(sizes)
    means = [math.fsum(row[item] for row in sums) / len(sums) for item in range(len(sizes))]
    items = over_items(means, sizes)
    if len(sums) == 1:
        return items
    return together(over_seeds_alone([math.fsum(row) / total for row in sums]), items)


def with_items(row: Row, single: Estimate | None, items: str) -> Row:
    """A figure over several seeds that share their test items, with the items' error too: that of the first seed."""
    seeds = len(row.values or ())
    if seeds < 2 or single is None or row.value is None or row.low is None or row.high is None:
        return row
    found = together(Interval(row.value, row.low, row.high), Interval(single.value, single.low, single.high))
    return replace(row, low=found.low, high=found.high, over=f"{seeds} seeds and the {items} that they share")
