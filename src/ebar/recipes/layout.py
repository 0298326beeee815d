"""What a page shows: tables, plots and claims as data.

Tables are laid out as the paper has them, ours and theirs side by side, or are a list of all figures. Plots are lines
of figures against a setting, or dots one below the other. Which statements of a paper hold here is said by `claims`.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebar.recipes.recipe import Laid, Row
from ebar.recipes.rows import chosen, escaped, split, text
from ebar.report.image_sheet import write_sheets
from ebar.report.plots import Dots, Line, Panel
from ebar.types import Estimate

FIGURE = "figure"  # stands for the name of a figure where settings are named


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Settings down the side and along the top; "figure" among them stands for the names of figures."""

    rows: Sequence[str]
    columns: Sequence[str] = (FIGURE,)
    figures: Sequence[str] = ("*",)  # those shown; a name that ends in * stands for all that begin so
    where: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # settings, their values or figures → what stands for them
    caption: str = ""

    def __call__(self, rows: Sequence[Row], elsewhere: str = "") -> Laid:
        """`elsewhere` says of which data the paper's figures are, where those are not ours."""
        found = (row for name in self.figures for row in chosen(rows, name, self.where))
        own = list({id(row): row for row in found if row.value is not None}.values())
        placed: dict[tuple[Any, ...], Row] = {}
        for row in own:
            place = (self._key(row, self.rows), self._key(row, self.columns))
            if placed.setdefault(place, row) is not row:
                raise ValueError(f"two figures at {place}: {placed[place]} and {row}")
        sides, tops = (_ordered([place[end] for place in placed]) for end in (0, 1))
        beside = {top for (_, top), row in placed.items() if row.document is not None}
        paper = f"paper ({elsewhere})" if elsewhere else "paper"
        header = [self.names.get(key, key) for key in self.rows]
        for top in tops:
            header += [self._label(top, self.columns) or "ours"] + ([paper] if top in beside else [])
        warnings: dict[str, int] = {}
        cells = []
        for side in sides:
            line = [self._word(value) for value in side]
            for top in tops:
                one = placed.get((side, top))
                line.append("" if one is None else _ours(one, warnings))
                line += [text(one and one.document)] if top in beside else []
            cells.append(line)
        notes = [f"Intervals: {_over(placed)}."] if any(row.over for row in own) else []
        return Laid(self.caption, header, cells, notes + [f"⚠{number}: {said}" for said, number in warnings.items()])

    def _key(self, row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
        return tuple(row.name if key == FIGURE else row.settings.get(key) for key in keys)

    def _word(self, value: Any) -> str:
        return self.names.get(str(value), text(value))

    def _label(self, values: tuple[Any, ...], keys: Sequence[str]) -> str:
        words = (
            f"{self.names.get(key, key)} {text(value)}" if isinstance(value, int | float) else self._word(value)
            for key, value in zip(keys, values, strict=True)
        )
        return ", ".join(word for word in words if word)


def layouts(rows: Sequence[str], *figures: str | Sequence[str], **more: Any) -> list[Layout]:
    """Tables with the same side, each of some figures; one figure by itself is the caption of its table."""
    return [
        Layout(rows=rows, figures=(of,), caption=of, **more) if isinstance(of, str) else
        Layout(rows=rows, figures=of, **more)
        for of in figures
    ]  # fmt: skip


def _ordered(keys: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Each once, those with the same beginning together, otherwise as they come."""
    known = [list(dict.fromkeys(values)) for values in zip(*keys, strict=True)]
    return sorted(
        dict.fromkeys(keys), key=lambda key: [ranks.index(one) for ranks, one in zip(known, key, strict=True)]
    )


def _ours(row: Row, warnings: dict[str, int]) -> str:
    exact = row.low is None or row.high is None or row.low == row.high
    ends = "" if exact else f" ({text(row.low)} … {text(row.high)})"
    mark = f" ⚠{warnings.setdefault(row.warning, len(warnings) + 1)}" if row.warning else ""
    return f"{text(row.value)}{ends}{mark}"


def _over(placed: Mapping[tuple[Any, ...], Row]) -> str:
    """What intervals are over: once for all, or by figure, line or column, whichever tells them apart."""
    known = {place: row for place, row in placed.items() if row.over}
    overs = list(dict.fromkeys(str(row.over) for row in known.values()))
    if len(overs) == 1:
        return overs[0]
    ways: list[Callable[[tuple[Any, ...], Row], Hashable]] = [
        lambda place, row: row.name, lambda place, row: place[0], lambda place, row: place[1],
        lambda place, row: (*place[0], *place[1]),
    ]  # fmt: skip
    for way in ways:
        overs_of: dict[Any, set[str]] = {}
        for place, row in known.items():
            overs_of.setdefault(way(place, row), set()).add(str(row.over))
        if all(len(one) == 1 for one in overs_of.values()):
            break
    parts = [f"{over} ({', '.join(_plain(key) for key, one in overs_of.items() if over in one)})" for over in overs]
    return "; ".join(parts)


def _plain(key: Any) -> str:
    return " ".join(text(part) for part in key if part is not None) if isinstance(key, tuple) else str(key)


def list_of_figures(rows: Sequence[Row], elsewhere: str = "") -> Laid:
    """All figures one below the other, a column for each setting, and none where all is empty."""
    settings = list(dict.fromkeys(key for row in rows for key in row.settings))
    paper = f"paper ({elsewhere})" if elsewhere else "paper"
    header = [FIGURE, *settings, "ours", "interval", "over", paper, "warning"]
    cells = []
    for row in rows:
        known = [text(row.settings.get(key)) for key in settings]
        ends = "" if row.low is None or row.high is None else f"{text(row.low)} … {text(row.high)}"
        rest = [text(value) for value in (row.over, row.document, row.warning)]
        cells.append([row.name, *known, text(row.value) or "–", ends, *rest])
    # A table of one's own has no paper beside it, and most have no warnings.
    shown = [place for place, name in enumerate(header) if name == "ours" or any(row[place] for row in cells)]
    return Laid("", [header[place] for place in shown], [[row[place] for place in shown] for row in cells], [])


def markdown(laid: Laid) -> list[str]:
    """A table as lines of Markdown, with its caption above and its notes below."""
    lines = [laid.header, ["---"] * len(laid.header), *laid.cells]
    table = ["| " + " | ".join(escaped(cell) for cell in line) + " |" for line in lines]
    caption = [laid.caption, ""] if laid.caption else []
    return [*caption, *table, "", *(line for note in laid.notes for line in (note, ""))]


def as_dot(row: Row) -> Estimate:
    """A row as an estimate, to be drawn."""
    value = float("nan") if row.value is None else row.value
    low, high = (value if end is None else end for end in (row.low, row.high))
    return Estimate(value, low, high, float("nan"))


def sheets(label: str) -> Callable[[Sequence[Row], Path], None]:
    """Draws the pictures of rows below one another, in place of plots; the label may name settings."""
    return lambda rows, path: write_sheets({label.format(**row.settings): row.picture or "" for row in rows}, path)


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Figures against a setting. Title and labels may name settings: "π, {matching}"."""

    of: Mapping[str, str]  # name of a figure → label of its line
    x: str
    title: str
    y_label: str = ""  # the title, where there is none
    x_label: str = ""  # the setting
    by: Sequence[str] = ()  # settings that have a line for each of their values
    panels: Sequence[str] = ()  # settings that have a panel for each of their values
    where: Mapping[str, Any] = field(default_factory=dict)
    dashed: Collection[str] = ()  # figures, or values of `by`, whose lines are
    # Horizontal lines: a number, the name of a figure that has it, or a function of the rows.
    levels: Mapping[str, float | str | Callable[[Sequence[Row]], float]] = field(default_factory=dict)
    bands: bool = True
    log_x: bool = False
    log_y: bool = False

    def __call__(self, rows: Sequence[Row]) -> list[Panel]:
        panels = []
        for own in split(rows, self.panels):
            here = {**self.where, **own}
            lines = []
            for part in split([row for name in self.of for row in chosen(rows, name, here)], self.by):
                for name, label in self.of.items():
                    found = chosen(rows, name, {**here, **part})
                    dashed = name in self.dashed or any(value in self.dashed for value in part.values())
                    if found:
                        lines.append(self._line(label.format(**part), found, dashed))
            levels = {}
            for name, level in self.levels.items():
                value = chosen(rows, level, own)[0].value if isinstance(level, str) else level
                levels[name] = value(rows) if callable(value) else float(value or 0.0)
            title = self.title.format(**own)
            panels.append(
                Panel(title=title, x_label=self.x_label or self.x, y_label=self.y_label or title, lines=lines,
                      levels=levels or None, log_x=self.log_x, log_y=self.log_y)
            )  # fmt: skip
        return panels

    def _line(self, name: str, rows: list[Row], dashed: bool) -> Line:
        points = sorted(((float(row.settings[self.x]), as_dot(row)) for row in rows), key=lambda point: point[0])
        low, high = ([getattr(dot, end) for _, dot in points] if self.bands else None for end in ("low", "high"))
        return Line(name=name, x=[x for x, _ in points], y=[dot.value for _, dot in points], low=low, high=high,
                    dashed=dashed)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Points:
    """Figures one below the other, each with its interval. Title and label may name settings, and {figure}."""

    of: Sequence[str]
    label: str
    title: str
    x_label: str
    panels: Sequence[str] = ()  # settings that have a panel for each of their values
    where: Mapping[str, Any] = field(default_factory=dict)
    less: float = 0.0  # what is taken off all of them, so that the line at 0 means something
    short: Mapping[str, str] = field(default_factory=dict)  # words of labels → what stands for them

    def __call__(self, rows: Sequence[Row]) -> list[Dots]:
        rows = [row for name in self.of for row in chosen(rows, name, self.where)]
        found = []
        for own in split(rows, self.panels):
            dots = {
                self._label(row): as_dot(row).mapped(lambda value: value - self.less) for row in chosen(rows, "*", own)
            }
            found.append(Dots(title=self.title.format(**own), x_label=self.x_label, rows=dots))
        return found

    def _label(self, row: Row) -> str:
        text = self.label.format(figure=row.name, **row.settings)
        for word, short in self.short.items():
            text = text.replace(word, short)
        return text
