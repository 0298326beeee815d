"""Plots as data: lines of figures against a setting, and dots one below the other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebar.recipes.recipe import Row
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots, Line, Panel
from ebar.types import Estimate


def chosen(rows: Sequence[Row], name: str, where: Mapping[str, Any]) -> list[Row]:
    """Rows of a figure with these settings; a name that ends in * stands for all that begin so."""
    return [
        row
        for row in rows
        if (row.name.startswith(name[:-1]) if name.endswith("*") else row.name == name)
        and all(row.settings.get(key) == value for key, value in where.items())
    ]


def split(rows: Sequence[Row], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The combinations of these settings that rows have."""
    if not keys:
        return [{}]
    known = dict.fromkeys(
        tuple(row.settings[key] for key in keys) for row in rows if all(key in row.settings for key in keys)
    )
    return [dict(zip(keys, values, strict=True)) for values in known]


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
            dots = {self._label(row): self._dot(row) for row in chosen(rows, "*", own)}
            found.append(Dots(title=self.title.format(**own), x_label=self.x_label, rows=dots))
        return found

    def _label(self, row: Row) -> str:
        text = self.label.format(figure=row.name, **row.settings)
        for word, short in self.short.items():
            text = text.replace(word, short)
        return text

    def _dot(self, row: Row) -> Estimate:
        dot = as_dot(row)
        return dot._replace(value=dot.value - self.less, low=dot.low - self.less, high=dot.high - self.less)
