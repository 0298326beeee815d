"""Figures over seeds, over test items, and over both: where seeds share their items, both errors count."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from ebar.maths.importance import all_warnings
from ebar.recipes.recipe import Result, Row
from ebar.types import Estimate


def over_seeds(
    name: str, settings: Mapping[str, Any], values: Sequence[float] | Sequence[Estimate], *,
    single: Estimate | None = None, document: float | str | None = None, warning: str | None = None,
    least: float = -math.inf,
) -> Row:  # fmt: skip
    """The mean with Student's 95 % interval, cut off at the `least` there can be.

    Of one seed: that run's own interval, where it has one, and where not a warning that there is none.
    Give estimates rather than their values, and what the runs warn of is said of the mean too, with how many do.
    """
    estimates = [one for one in values if isinstance(one, Estimate)]
    if estimates and single is None:
        single = estimates[0]
    values = [one.value if isinstance(one, Estimate) else one for one in values]
    count = len(values)
    said = [one.warning for one in estimates]
    if not estimates and single is not None and single.warning:
        said = [single.warning if count == 1 else f"the first of {count} runs: {single.warning}"]
    warning = all_warnings(warning, said_of_runs(said))
    mean = math.fsum(values) / count
    low = high = None
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        width = _student(count - 1) * deviation / math.sqrt(count)
        low, high = max(least, mean - width), mean + width
    elif single is not None:
        low, high = single.low, single.high
    else:
        warning = warning or "one seed"
    return Row(name=name, settings=dict(settings), value=mean, low=low, high=high, document=document, warning=warning,
               values=list(values))  # fmt: skip


def said_of_runs(warnings: Sequence[str | None]) -> str | None:
    """What runs that differ in their seed warn of: the first sentence, and how many of them have one."""
    said = [warning for warning in warnings if warning]
    if not said or len(warnings) == 1:
        return said[0] if said else None
    return f"{len(said)} of {len(warnings)} runs: {said[0]}"


def grouped(results: Iterable[Result], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Result]]:
    """Runs that differ in nothing but the seed, by their settings."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for cell, result in results:
        groups.setdefault(tuple(cell[key] for key in keys), []).append((cell, result))
    return groups


def as_dot(row: Row) -> Estimate:
    """A row as an estimate, to be drawn."""
    value = float("nan") if row.value is None else row.value
    low, high = (value if end is None else end for end in (row.low, row.high))
    return Estimate(value, low, high, float("nan"))


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


def combined_error(*parts: Interval) -> Interval:
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
    return combined_error(over_seeds_alone([math.fsum(row) / total for row in sums]), items)


def with_items(row: Row, single: Estimate | None, items: str) -> Row:
    """A figure over several seeds that share their test items, with the items' error too: that of the first seed."""
    seeds = len(row.values or ())
    if seeds < 2 or single is None or row.value is None or row.low is None or row.high is None:
        return row
    found = combined_error(Interval(row.value, row.low, row.high), Interval(single.value, single.low, single.high))
    return replace(row, low=found.low, high=found.high, over=f"{seeds} seeds and the {items} that they share")
