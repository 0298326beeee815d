"""Figures over seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.recipe import Row
from ebar.types import Estimate


def over_seeds(
    name: str, settings: Mapping[str, Any], values: Sequence[float], *, single: Estimate | None = None,
    document: float | str | None = None, warning: str | None = None, least: float = -math.inf,
) -> Row:  # fmt: skip
    """The mean with Student's 95 % interval, cut off at the `least` there can be.

    Of one seed: that run's own interval, where it has one, and where not a warning that there is none.
    """
    from scipy.stats import t

    count = len(values)
    mean = math.fsum(values) / count
    low = high = None
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        width = float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
        low, high = max(least, mean - width), mean + width
    elif single is not None:
        low, high = single.low, single.high
    else:
        warning = warning or "one seed"
    return Row(name=name, settings=dict(settings), value=mean, low=low, high=high, document=document, warning=warning,
               values=list(values))  # fmt: skip


def grouped(results: Iterable[Result], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Result]]:
    """Runs that differ in nothing but the seed, by their settings."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for cell, result in results:
        groups.setdefault(tuple(cell[key] for key in keys), []).append((cell, result))
    return groups


def as_estimate(tree: Mapping[str, Any] | None) -> Estimate | None:
    """What JSON made of an `Estimate`."""
    if tree is None:
        return None
    fields = {key: value for key, value in tree.items() if key in Estimate._fields}
    known: dict[str, Any] = {key: value if key == "warning" else float(value) for key, value in fields.items()}
    return Estimate(**known)


def as_dot(row: Row) -> Estimate:
    """A row as an estimate, to be drawn."""
    value = float("nan") if row.value is None else row.value
    low, high = (value if end is None else end for end in (row.low, row.high))
    return Estimate(value, low, high, float("nan"))
