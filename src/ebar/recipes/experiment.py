"""The earlier way to write a recipe, of functions alone; `Recipe` takes their place."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.recipe import Cell, Reading, Recipe, Result, Row
from ebar.report.plots import Dots, Panel

__all__ = ["Experiment", "Result"]


def Experiment(  # noqa: N802
    *,
    cells: Callable[[str], list[Cell]],
    work: Callable[[Cell, Path], dict[str, Any]],
    figures: Callable[[Sequence[Result]], list[Row]],
    panels: Callable[[Sequence[Row]], Sequence[Panel | Dots]],
    title: str,
    source: str,
    runs: str | None = None,
    notes: Callable[[Sequence[Row]], list[str]] = lambda rows: [],
    reading: Reading | None = None,
) -> Recipe:
    """A recipe from its cells, the work of one, the figures of all and the picture."""
    return Recipe(
        title=title, source=source, grid=cells, run=work, figures=[figures], plots=[panels], runs=runs, notes=notes,
        reading=reading or Reading(),
    )  # fmt: skip
