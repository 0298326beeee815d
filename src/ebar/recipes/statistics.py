"""Figures over seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    from scipy.stats import t

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
        width = float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
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
