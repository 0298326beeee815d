"""A recorded result as a page and a plot, from its JSON alone: nothing is run again, and nothing is typed by hand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebar.recipes.recipe import Cell, Reading, Recipe, Recorded, Remarks, Row
from ebar.recipes.recorded import cut_off, read_result, reading_of, settled
from ebar.recipes.table import page
from ebar.store.writing import replace, saving

FORMAT = 2  # of a record: 2 has the settings of its runs, and what each interval is over
UNKEPT = (
    "This record is of the first format. It does not hold the settings of its runs (those named here are the recipe's, "
    "unchanged since), the figures of single seeds and test items, or most warnings of single runs: that a row has no "
    "warning does not mean that there was none."
)
TAILS = (
    "“The weights are heavy-tailed … the interval is too narrow” is what the code of then said, of plain means without "
    "weights too, and from a k̂ far below 0.7 on. Read it as: the interval may be too narrow."
)
SINGLE = ("seed", "scale")  # settings in which runs of one scale differ in any case


def write_page(path: Path, recipe: Recipe) -> None:
    """Beside the JSON at `path`: the table to read, as Markdown, and the plot."""
    text, rows = rendered(path, recipe)
    with saving(str(path.with_suffix(".md"))):
        recipe.plot(rows, path.with_suffix(".svg"))
        replace(path.with_suffix(".md"), text.encode())


def rendered(path: Path, recipe: Recipe) -> tuple[str, list[Row]]:
    """The page as Markdown, and the rows it shows."""
    record, recorded = read_result(path, recipe)
    rows = shown(recorded, recipe)
    reading = reading_of(recipe)
    view = {
        **record,
        # Words are the recipe's own of today; figures are the record's.
        "title": recipe.title,
        "source": recipe.source,
        "rows": [asdict(row) for row in rows],
        "notes": _notes(record, recorded, rows, recipe, reading),
        "elsewhere": reading.elsewhere(recorded.cells),
    }
    return page(view, path.with_suffix(".svg").name), rows


def shown(recorded: Recorded, recipe: Recipe) -> list[Row]:
    """Recorded rows under their names of today, each interval with what it is over."""
    reading = reading_of(recipe)
    return settled(reading.correct(recorded), recorded.cells, reading)


def _notes(
    record: Mapping[str, Any], recorded: Recorded, rows: Sequence[Row], recipe: Recipe, reading: Reading
) -> list[str]:
    said = recipe.remarks(rows) if isinstance(recipe, Remarks) else []
    said += reading.departures(recorded.cells)
    if record["scale"] != "paper":
        said += apart(recorded.cells, recipe.grid("paper"))
    if reading.shared and any("seeds" in (row.over or "") for row in rows):
        said.append(reading.shared)
    cut = cut_off(rows, reading)
    if cut:
        said.append(
            "Where Student's interval over seeds goes past what a figure can be (0 and 1 for a frequency, 0 for a "
            f"distance), it is cut off there: {cut} of this page. That loses no coverage; but so near an end errors "
            "are skewed, and such an interval over a few seeds is rough."
        )
    if record.get("format", 1) < FORMAT:
        said += [TAILS] if any("weights are heavy-tailed" in (row.warning or "") for row in rows) else []
        said.append(UNKEPT)
    return said


def apart(ours: Sequence[Mapping[str, Any]], paper: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that are not those of scale paper, with the latter in brackets."""
    own, theirs = _settings(ours), _settings(paper)
    different = [
        f"{key} {' / '.join(own.get(key, ['–']))} ({' / '.join(theirs.get(key, ['–']))})"
        for key in dict.fromkeys([*own, *theirs])
        if own.get(key) != theirs.get(key)
    ]
    return [f"Settings that are not those of scale paper (in brackets): {'; '.join(different)}."] if different else []


def _settings(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Each setting with all values that it has in some run."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for key, value in _flat(cell):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if key not in SINGLE and text not in found.setdefault(key, []):
                found[key].append(text)
    return found


def _flat(tree: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    parts = []
    for key, value in tree.items():
        parts += _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else [(before + key, value)]
    return parts
