"""A recipe made of four functions: its cells, the work of one, the figures of all, the picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebar.recipes.recipe import Cell, Reading, Row
from ebar.report.plots import Dots, Panel, draw

Result = tuple[Cell, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of independent runs."""

    title: str
    source: str
    cells: Callable[[str], list[Cell]]
    work: Callable[[Cell, Path], dict[str, Any]]
    figures: Callable[[Sequence[Result]], list[Row]]
    panels: Callable[[Sequence[Row]], Sequence[Panel | Dots]]
    runs: str | None = None  # tables read off the same runs name one folder for them
    notes: Callable[[Sequence[Row]], list[str]] = lambda rows: []
    reading: Reading = field(default_factory=Reading)

    def grid(self, scale: str) -> list[Cell]:
        return self.cells(scale)

    def run(self, cell: Cell, folder: Path) -> dict[str, Any]:
        return self.work(cell, folder)

    def rows(self, scale: str, results: Sequence[Result]) -> list[Row]:
        return self.figures(results)

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        return self.notes(rows)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        draw(self.panels(rows), path)
