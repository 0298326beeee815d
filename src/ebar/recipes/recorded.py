"""A result read back from its JSON; each interval with what it is over, and cut off where its figure ends."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebar.recipes.recipe import Cell, Reading, Recipe, Recorded, Row

SAME = "the same in all"


def row_from(tree: Mapping[str, Any]) -> Row:
    """A row as it was before it became JSON, which writes ±∞ and NaN as strings."""
    numbers = {key: None if tree[key] is None else float(tree[key]) for key in ("value", "low", "high")}
    return Row(**{**tree, **numbers})


def read_result(path: Path, recipe: Recipe) -> tuple[dict[str, Any], Recorded]:
    """The record, and its rows with the settings they were run with.

    A record of the first format has no settings: there they are those that the recipe has today.
    """
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    name, scale = str(record["recipe"]), str(record["scale"])
    root = path.parents[name.count("/")]

    def beside(other: str) -> Sequence[Row]:
        place = root / f"{other}.{scale}.json"
        if not place.exists():
            return ()
        found = json.loads(place.read_text(encoding="utf-8"))
        return [row_from(row) for row in found["rows"]] if found["commit"] == record["commit"] else ()

    cells = record.get("cells") or recipe.grid(scale)
    return record, Recorded(rows=[row_from(row) for row in record["rows"]], cells=cells, beside=beside)


def settled(rows: Sequence[Row], cells: Sequence[Cell], reading: Reading) -> list[Row]:
    """Every interval with what it is over, and inside what its figure can be. Done twice it changes nothing."""
    return [_with_over(within(row, reading.ranges.get(row.name)), cells, reading) for row in rows]


def within(row: Row, ends: tuple[float, float] | None) -> Row:
    """The interval cut off at the least and the most there can be: beyond lies no truth that it could cover."""
    if ends is None or row.low is None or row.high is None:
        return row
    least, most = ends
    return replace(row, low=min(max(row.low, least), most), high=max(min(row.high, most), least))


def cut_off(rows: Sequence[Row], reading: Reading) -> int:
    """How many intervals over seeds end where their figure can go no further."""
    count = 0
    for row in rows:
        ends = reading.ranges.get(row.name)
        if ends is not None and row.low is not None and row.high is not None and row.low < row.high:
            count += "seeds" in (row.over or "") and (row.low == ends[0] or row.high == ends[1])
    return count


def _with_over(row: Row, cells: Sequence[Cell], reading: Reading) -> Row:
    if row.over is not None or row.low is None or row.high is None:
        return row
    seeds = seeds_of(row, cells)
    constant = row.low == row.high == row.value
    if seeds > 1:
        return replace(row, over=f"{SAME} {seeds} seeds" if constant else f"{seeds} seeds")
    over = reading.items if isinstance(reading.items, str) else reading.items(row, cells)
    if constant and math.isfinite(row.low):
        return replace(row, over=", ".join(["exact", *over.split(", ")[1:]]))  # what follows is what there is one of
    return replace(row, over=over or None)


def seeds_of(row: Row, cells: Sequence[Cell]) -> int:
    """How many seeds the runs have whose settings are those of the row, as far as it names them."""
    own = [cell for cell in cells if all(cell[key] == value for key, value in row.settings.items() if key in cell)]
    return len({cell["seed"] for cell in own})
