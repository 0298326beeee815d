"""Names in the rows of the residual recipes, and what their intervals are over."""

import re
from collections.abc import Sequence
from typing import Any

from ebar.recipes.recipe import Cell, Items, Row

JOINT = "joint model"  # of which a gain is, beside those of students
TASK = ("base", "corpus")
NAMES = {"base": "base LM", "ralm": "RALM", "balm": "BALM", "unit": "UniT", "bit": "BiT", "pretrained": "BiT*"}
UNSURE = re.compile("k̂|doubling|draws for each prefix")  # of Z, not of which side of the base's the interval is on
BASES = {"transformer": "Transformer", "smollm2": "SmolLM2-135M", "stories260k": "stories260K"}


def named(cell: Any, kind: str) -> dict[str, Any]:
    """What a row is about."""
    return {"corpus": cell["corpus"], "base": BASES[cell["base"]], "model": NAMES[kind]}


def about(row: Row) -> tuple[str, ...]:
    """The corpus, the base and the model of a row."""
    return tuple(str(row.settings[key]) for key in ("corpus", "base", "model"))


def doubts(rows: Sequence[Row]) -> dict[tuple[str, ...], str]:
    """Models with a Z that the draws do not establish, for any of their seeds: what rests on it is in doubt too."""
    found: dict[tuple[str, ...], str] = {}
    for row in rows:
        if row.warning is not None and row.warning.startswith("not established") and UNSURE.search(row.warning):
            found.setdefault(about(row), f"rests on a Z that is {row.warning}")
    return found


def cell_of(row: Row, cells: Sequence[Cell]) -> Cell:
    """The run that a row is of, with the settings that its energy has of its own."""
    found = next(
        cell for cell in cells
        if (cell["corpus"], BASES[cell["base"]]) == (row.settings["corpus"], row.settings["base"])
    )  # fmt: skip
    kind = next(kind for kind, name in NAMES.items() if name == row.settings["model"])
    own = found["energies"].get(kind, {})
    return {**found, **own.get("figures", {})}


def prefixes_of(key: str | None = None) -> Items:
    """Says over how many prefixes the intervals are: all of the test text's, or as many as one part of a run has."""

    def items(row: Row, cells: Sequence[Cell]) -> str:
        cell = cell_of(row, cells)
        count = cell["test_chunks"] if key is None else min(cell[key]["prefixes"], cell["test_chunks"])
        return f"{count} prefixes, one energy seed"

    return items


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of one base on one corpus, by their name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.settings['base']} on {row.settings['corpus']}", []).append(row)
    return groups
