"""A recorded result as a page and a plot, from its JSON alone: nothing is run again, and nothing is typed by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.claims import compared
from ebar.recipes.layout import escaped, listed, markdown
from ebar.recipes.recipe import Cell, Recipe, Recorded, Row
from ebar.recipes.recorded import cut_off, read_result, settled
from ebar.store.writing import replace, saving

INTERVALS = (
    "Intervals are at 95 %, unless it is said otherwise. What varies in them is said with them: seeds (Student's "
    "interval over one figure for each), test items, draws. An interval is valid for others of what it is over, and "
    "for nothing else."
)
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
    """Beside the JSON at `path`: the page to read, as Markdown, and the plot."""
    text, rows = rendered(path, recipe)
    with saving(str(path.with_suffix(".md"))):
        recipe.plot(rows, path.with_suffix(".svg"))
        replace(path.with_suffix(".md"), text.encode())


def rendered(path: Path, recipe: Recipe) -> tuple[str, list[Row]]:
    """The page as Markdown, and the rows it is made of."""
    record, recorded = read_result(path, recipe)
    rows = shown(recorded, recipe)
    return page(record, recorded.cells, rows, recipe, path.with_suffix(".svg").name), rows


def shown(recorded: Recorded, recipe: Recipe) -> list[Row]:
    """Recorded rows under their names of today, each interval with what it is over."""
    reading = recipe.read
    return settled(reading.correct(recorded), recorded.cells, reading)


def page(record: Mapping[str, Any], cells: Sequence[Cell], rows: Sequence[Row], recipe: Recipe, plot: str) -> str:
    """The tables, the plot, and in words what is reproduced and how the runs differ from the paper's.

    Words are the recipe's own of today; figures are the record's.
    """
    seeds = len(record["seeds"])
    commit = "" if record["commit"] is None else f", commit `{record['commit'][:12]}`"
    elsewhere = recipe.reading.elsewhere(cells)
    laid = [layout(rows, elsewhere or "") for layout in recipe.tables or (listed,)]
    words = {
        "What is reproduced": [claim(rows) for claim in recipe.claims] + compared(rows, elsewhere),
        "How to read it": [*recipe.notes(rows), *_notes(record, cells, rows, recipe)],
    }
    return "\n".join(
        [
            f"# {recipe.title}",
            "",
            f"Source: {recipe.source}. Scale {record['scale']}, {seeds} "
            f"seed{'s' * (seeds > 1)}, {record['wall_seconds']:,.0f} s in all{commit}: `{record['command']}`.",
            "",
            INTERVALS,
            "",
            *(line for one in laid if one.cells for line in markdown(one)),
            f"![{escaped(recipe.title)}]({plot})",
            "",
            *(line for title, said in words.items() if said for line in (f"## {title}", "", *_bullets(said))),
        ]
    )


def _bullets(said: Sequence[str]) -> list[str]:
    return [line for note in said for line in (f"- {' '.join(note.split())}", "")]


def _notes(record: Mapping[str, Any], cells: Sequence[Cell], rows: Sequence[Row], recipe: Recipe) -> list[str]:
    reading = recipe.read
    said = list(reading.departures(cells))
    if record["scale"] != "paper":
        said += apart(cells, recipe.grid("paper"))
    if reading.shared and any("seeds" in (row.over or "") for row in rows):
        said.append(reading.shared)
    cut = cut_off(rows, reading)
    if cut:
        said.append(
            "Where Student's interval over seeds goes past what a figure can be (0 and 1 for a frequency, 0 for a "
            f"distance), it is cut off there: {cut} of the figures. That loses no coverage; but so near an end errors "
            "are skewed, and such an interval over a few seeds is rough."
        )
    if record.get("format", 1) < FORMAT:
        said += [TAILS] if any("weights are heavy-tailed" in (row.warning or "") for row in rows) else []
        said.append(UNKEPT)
    if recipe.tables:
        said.append("All figures, with those that the tables leave out, are in the JSON file beside this page.")
    return said


def apart(ours: Sequence[Mapping[str, Any]], paper: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that are not those of scale paper, with the latter in brackets."""
    if all("configuration" in cell for cell in [*ours, *paper]):
        ours, paper = ([cell["configuration"] for cell in cells] for cells in (ours, paper))
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
