"""Figures of finished runs: where each is in a result, how runs are grouped and paired, and what the paper has.

Their intervals are over seeds, over test items, or over both: where seeds share their items, both errors count.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from ebar.maths.importance import all_warnings
from ebar.recipes.recipe import Cell, Items, Range, Result, Row
from ebar.types import Estimate

Read = str | Callable[..., Any]  # a path in a run's result such as "models.π.exact", or a function of it
Each = Mapping[Any, Any] | Sequence[Any] | str | Callable[[dict[str, Any]], Mapping[Any, Any]]
SMALLEST = 1e-12  # of a divisor: a ratio to 0 is large, and finite


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a group of runs that differ in nothing but the seed."""

    name: str  # with settings of `each` in it where they belong: "moment of {feature}"
    at: Read
    # The figure stands for several, such as one for each feature: setting → label → what stands in the path for it, or
    # a function from a result to such a mapping; labels alone, where they stand for themselves; or the path of what has
    # them as its keys, whole numbers among them. A setting that the name has is not shown beside it.
    each: Mapping[str, Each] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)  # only runs with these settings
    # Less the same of the run that differs from this one in these settings, or in those that a function of its settings
    # gives; where `paper` is a function, so are the paper's figures.
    minus: Mapping[str, Any] | Callable[[Cell], Mapping[str, Any]] | None = None
    over: Mapping[str, Any] | None = None  # … divided by it
    # More settings to show.
    about: Mapping[str, Any] | Callable[[Sequence[Result]], Mapping[str, Any]] = field(default_factory=dict)
    # The paper's own: by the row's settings (a value or a tuple), or in the order of `each`, or a function of the row's
    # settings and those of its runs.
    paper: Mapping[Any, Any] | Sequence[Any] | Callable[[Mapping[str, Any]], Any] = field(default_factory=dict)
    single: Read | None = None  # where a run's own interval is, if not with its figure
    exact: bool = False  # known without error, and the same in all runs of a group
    bare: bool = False  # a number of one run without an interval, which needs no warning that there is none
    warns: Read | None = None  # a run's warning, where its estimate has none
    empty: str | None = None  # what to say where no run has the figure; None: there is no row then
    shared: str = ""  # test items that all seeds share, whose error (that of the first seed) belongs in the interval
    items: Items = ""  # what the interval of a single run is over
    range: Range | None = None  # the least and the most that it can be
    least: Read | None = None  # … where the least is a figure of the run
    # In place of Student's interval over seeds.
    summary: Callable[[str, Mapping[str, Any], list[float]], Row] | None = None

    @property
    def labelled(self) -> list[str]:
        """Its name with each of its labels, where it has some that are known before any run."""
        known = {
            key: list(one)
            for key, one in self.each.items()
            if not callable(one) and not isinstance(one, str) and f"{{{key}}}" in self.name
        }
        try:
            return [self.name.format(**dict(zip(known, labels, strict=True))) for labels in product(*known.values())]
        except KeyError:
            return [self.name]

    def names(self, name: str) -> bool:
        """Whether rows of this name are of this figure."""
        return re.fullmatch(re.sub(r"\\\{.*?\\\}", ".*", re.escape(self.name)), name) is not None


class Figures:
    """Figures of runs that are grouped by the same settings."""

    def __init__(
        self,
        *of: Figure,
        by: Sequence[str],
        # What a row's settings are → the paper's number for each figure, in their order.
        paper: Mapping[Any, Sequence[Any]] | None = None,
        # A run as several, each with more settings: those of its models, say.
        parts: Callable[[Cell, dict[str, Any]], Iterable[Result]] = lambda cell, result: [(cell, result)],
    ):
        self.of, self.by, self.paper, self.parts = of, by, paper or {}, parts

    def __call__(self, results: Sequence[Result]) -> list[Row]:
        rows = []
        results = [part for result in results for part in self.parts(*result)]
        for group, runs in grouped(results, self.by).items():
            settings = dict(zip(self.by, group, strict=True))
            for place, figure in enumerate(self.of):
                for row in _rows(figure, settings, runs, results, self.by):
                    theirs = _entry(self.paper, row.settings, settings)
                    rows.append(row if theirs is None else replace(row, document=theirs[place]))
        return rows


def found(result: Any, read: Read, **each: Any) -> Any:
    """What is there: an `Estimate` where the JSON has one."""
    if not isinstance(read, str):
        value = read(result, **each)
    else:
        value = result
        for part in read.split("."):
            key = part.format(**each)
            value = value[int(key)] if isinstance(value, list) else value[key]
    return Estimate.from_dict(value) if isinstance(value, Mapping) and "low" in value else value


def _labels(each: Each, result: dict[str, Any]) -> Mapping[Any, Any]:
    """What a figure stands for in one result, and what stands in the path for it."""
    if callable(each):
        return each(result)
    if not isinstance(each, str):
        return each if isinstance(each, Mapping) else {label: label for label in each}
    keys = found(result, each)
    whole = isinstance(keys, Mapping)  # JSON has numbers as keys only in words
    return {int(label) if whole and label.isdigit() else label: label for label in keys}


def _rows(
    figure: Figure, group: Mapping[str, Any], runs: Sequence[Result], results: Sequence[Result], by: Sequence[str]
) -> Iterator[Row]:
    runs = [run for run in runs if all(run[0][key] == value for key, value in figure.where.items())]
    runs, partners = _paired(figure, runs, results, by)
    if not runs:
        return
    first = runs[0][1]
    each = {key: _labels(one, first) for key, one in figure.each.items()}
    for place, labels in enumerate(product(*each.values())):
        said = dict(zip(each, labels, strict=True))
        parts = {key: each[key][label] for key, label in said.items()}
        name = figure.name.format(**said)
        settings = {**group, **{key: label for key, label in said.items() if f"{{{key}}}" not in figure.name}}
        settings |= figure.about(runs) if callable(figure.about) else figure.about
        document = _paper(figure, place, {**settings, **said, **runs[0][0]}, settings | said, group)
        values = [found(result, figure.at, **parts) for _, result in runs]
        if partners is not None:
            others = [found(result, figure.at, **parts) for result in partners]
            if None in values or None in others:
                continue
            pairs = zip(map(_number, values), map(_number, others), strict=True)
            values = [one - other if figure.over is None else one / max(other, SMALLEST) for one, other in pairs]
        yield from _row(figure, name, settings, values, runs, parts, document)


def _row(
    figure: Figure, name: str, settings: Mapping[str, Any], values: list[Any], runs: Sequence[Result],
    parts: Mapping[str, Any], document: Any,
) -> Iterator[Row]:  # fmt: skip
    values = [value for value in values if value is not None]
    if not values or (figure.empty is not None and len(values) < len(runs)):
        if figure.empty is not None:
            yield Row(name=name, settings=settings, value=None, low=None, high=None, warning=figure.empty)
        return
    if figure.exact or (figure.bare and not isinstance(values[0], Estimate)):
        value = _number(values[0])
        end = value if figure.exact else None
        yield Row(name=name, settings=settings, value=value, low=end, high=end, document=document)
        return
    if figure.summary is not None:
        yield replace(figure.summary(name, settings, [_number(value) for value in values]), document=document)
        return
    single = None if figure.single is None else found(runs[0][1], figure.single, **parts)
    warning = figure.warns and said_of_runs([found(result, figure.warns, **parts) for _, result in runs])
    numbers = [_number(value) for value in values]
    estimates = values if figure.single is None and all(isinstance(value, Estimate) for value in values) else numbers
    least = -math.inf if figure.least is None else found(runs[0][1], figure.least, **parts)
    row = over_seeds(name, settings, estimates, single=single, document=document, warning=warning or None, least=least)
    if figure.shared:
        row = with_items(row, single or (values[0] if isinstance(values[0], Estimate) else None), figure.shared)
    yield row


def _paired(
    figure: Figure, runs: Sequence[Result], results: Sequence[Result], by: Sequence[str]
) -> tuple[Sequence[Result], list[dict[str, Any]] | None]:
    """The runs that have a partner, and its results: a run of the same group and seed but for some settings."""
    if figure.minus is None and figure.over is None:
        return runs, None
    partners = [_partner(figure, cell) for cell, _ in runs]
    keys = list(dict.fromkeys([*by, *(key for partner in partners for key in partner), "seed"]))
    known = {tuple(cell[key] for key in keys): result for cell, result in results}
    pairs = [(run, {**run[0], **partner}) for run, partner in zip(runs, partners, strict=True)]
    pairs = [(run, other) for run, other in pairs if other != run[0]]
    return [run for run, _ in pairs], [known[tuple(other[key] for key in keys)] for _, other in pairs]


def _partner(figure: Figure, cell: Cell) -> Mapping[str, Any]:
    """The settings that the run which this one is compared with has in place of its own."""
    other = (figure.minus if figure.over is None else figure.over) or {}
    return other(cell) if callable(other) else other


def _paper(
    figure: Figure, place: int, known: Mapping[str, Any], settings: Mapping[str, Any], group: Mapping[str, Any]
) -> Any:
    if callable(figure.paper):
        own = figure.paper(known)
        if figure.minus is None or isinstance(own, str):
            return own
        other = figure.paper({**known, **_partner(figure, known)})
        return None if own is None or other is None else round(own - other, 4)
    if isinstance(figure.paper, Mapping):
        return _entry(figure.paper, settings, group)
    return figure.paper[place] if place < len(figure.paper) else None


def _entry(table: Mapping[Any, Any], settings: Mapping[str, Any], group: Mapping[str, Any]) -> Any:
    """An entry of a paper's table: by all of a row's settings, or by those of its group."""
    for known in (settings, group):
        key = tuple(known.values())
        entry = table.get(key[0] if len(key) == 1 else key)
        if entry is not None:
            return entry
    return None


def _number(value: Any) -> float:
    return value.value if isinstance(value, Estimate) else float(value)


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
        width = student(count - 1) * deviation / math.sqrt(count)
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
    width = student(count - 1) * math.sqrt(squares * count / (count - 1)) / total
    return Interval(ratio, ratio - width, ratio + width)


@cache
def student(freedom: int) -> float:
    """The 0.975 quantile of Student's distribution."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def row_of(name: str, settings: Mapping[str, Any], found: Interval | Estimate, **more: Any) -> Row:
    """A figure with its interval, as a row."""
    return Row(name=name, settings=settings, value=found.value, low=found.low, high=found.high, **more)


def alone(of: Callable[[Sequence[float]], float]) -> Callable[[str, Mapping[str, Any], Sequence[float]], Row]:
    """A figure of all seeds, without an interval."""
    return lambda name, settings, values: Row(name=name, settings=settings, value=of(values))


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
