"""A recorded result as a page and a plot, from its JSON alone: nothing is run again, and nothing is typed by hand.

Every interval says what it is over, and is cut off where its figure ends.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebar.errors import UserError
from ebar.recipes.claims import compared_with_paper
from ebar.recipes.layout import list_of_figures, markdown
from ebar.recipes.recipe import Caption, Cell, Finding, Recipe, Row, several
from ebar.recipes.rows import escaped
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving

INTERVALS = (
    "Intervals are at 95 %, unless it is said otherwise. What varies in them is said with them: seeds (Student's "
    "interval over one figure for each), test items, draws. An interval is valid for others of what it is over, and "
    "for nothing else."
)
FORMAT = 2  # of a record: 1 did not say of each interval what it is over
SAME = "the same in all"
SINGLE = ("seed", "scale")  # settings in which runs of one scale differ in any case


def write_recipe_page(path: Path, recipe: Recipe) -> None:
    """Beside the JSON at `path`: the page to read, as Markdown, and the plot."""
    text, rows = rendered(path, recipe)
    with saving(str(path.with_suffix(".md"))):
        recipe.plot(rows, path.with_suffix(".svg"))
        replace_file(path.with_suffix(".md"), text.encode())


def rendered(path: Path, recipe: Recipe) -> tuple[str, list[Row]]:
    """The page as Markdown, and the rows it is made of."""
    record, cells, rows = read_record(path, recipe)
    return recipe_page(record, cells, rows, recipe, path.with_suffix(".svg").name), rows


def read_record(path: Path, recipe: Recipe) -> tuple[dict[str, Any], Sequence[Cell], list[Row]]:
    """A record as plain data, the settings of its runs, and its rows, ready to be shown."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("format", 1) != FORMAT:
        raise UserError(f"{path} was recorded by another version of ebar: run the recipe again with --fresh.")
    # A record that does not hold the settings of its runs has those of the recipe.
    cells = record.get("cells") or recipe.grid(str(record["scale"]))
    return record, cells, settled([row_from(row) for row in record["rows"]], cells, recipe.read)


def row_from(tree: Mapping[str, Any]) -> Row:
    """A row as it was before it became JSON, which writes ±∞ and NaN as strings."""
    numbers = {key: None if tree[key] is None else float(tree[key]) for key in ("value", "low", "high")}
    return Row(**{**tree, **numbers})


def recipe_page(
    record: Mapping[str, Any], cells: Sequence[Cell], rows: Sequence[Row], recipe: Recipe, plot: str
) -> str:
    """The tables, the plot, and in words what is reproduced and how the runs differ from the paper's.

    Words are the recipe's own of today; figures are the record's.
    """
    # Older records know only the runs' times, added up.
    seeds, passed = len(record["seeds"]), record.get("elapsed_seconds")
    time = f"{record['wall_seconds']:,.0f} s in all" + ("" if passed is None else f", {passed:,.0f} s elapsed")
    commit = "" if record["commit"] is None else f", commit `{record['commit'][:12]}`"
    elsewhere = recipe.reading.elsewhere(cells)
    laid = [layout(rows, elsewhere or "") for layout in several(recipe.tables) or (list_of_figures,)]
    words = {
        "What is reproduced": [one.sentence for one in findings(recipe, rows)] + compared_with_paper(rows, elsewhere),
        "How to read it": [*recipe.notes(rows), *_notes(record, cells, rows, recipe)],
    }
    return "\n".join(
        [
            f"# {recipe.title}",
            "",
            f"Source: {recipe.source}. Scale {record['scale']}, {seeds} "
            f"seed{'s' * (seeds > 1)}, {time}{commit}: `{record['command']}`.",
            "",
            INTERVALS,
            "",
            *(line for one in laid if one.cells for line in markdown(one)),
            f"![{escaped(recipe.title)}]({plot})",
            "",
            *(line for title, said in words.items() if said for line in (f"## {title}", "", *_bullets(said))),
        ]
    )


def findings(recipe: Recipe, rows: Sequence[Row]) -> list[Finding]:
    """What became of a recipe's claims."""
    said = [claim(rows) for claim in several(recipe.claims)]
    return [Finding("", one) if isinstance(one, str) else one for one in said]


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
    said += record.get("caveats", [])
    if recipe.tables:
        said.append("All figures, with those that the tables leave out, are in the JSON file beside this page.")
    return said


def apart(ours: Sequence[Mapping[str, Any]], paper: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that are not those of scale paper, with the latter in brackets."""
    if all("configuration" in cell for cell in [*ours, *paper]):
        ours, paper = ([_configured(cell) for cell in cells] for cells in (ours, paper))
    own, theirs = _settings(ours), _settings(paper)
    different = [
        f"{key} {' / '.join(own.get(key, ['–']))} ({' / '.join(theirs.get(key, ['–']))})"
        for key in dict.fromkeys([*own, *theirs])
        if own.get(key) != theirs.get(key)
    ]
    return [f"Settings that are not those of scale paper (in brackets): {'; '.join(different)}."] if different else []


def _configured(cell: Cell) -> Mapping[str, Any]:
    """The configuration, and groups of settings beside it; single ones beside it are names for what is in it."""
    groups = {key: value for key, value in cell.items() if isinstance(value, Mapping) and key != "configuration"}
    return {**cell["configuration"], **groups}


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


def settled(rows: Sequence[Row], cells: Sequence[Cell], reading: Caption) -> list[Row]:
    """Every interval with what it is over, and inside what its figure can be. Done twice it changes nothing."""
    return [_with_over(within(row, reading.ranges.get(row.name)), cells, reading) for row in rows]


def within(row: Row, ends: tuple[float, float] | None) -> Row:
    """The interval cut off at the least and the most there can be: beyond lies no truth that it could cover."""
    if ends is None or row.low is None or row.high is None:
        return row
    least, most = ends
    return replace(row, low=min(max(row.low, least), most), high=max(min(row.high, most), least))


def cut_off(rows: Sequence[Row], reading: Caption) -> int:
    """How many intervals over seeds end where their figure can go no further."""
    known = [(row, reading.ranges.get(row.name)) for row in rows if "seeds" in (row.over or "") and row.low != row.high]
    return sum(ends is not None and (row.low == ends[0] or row.high == ends[1]) for row, ends in known)


def _with_over(row: Row, cells: Sequence[Cell], reading: Caption) -> Row:
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
