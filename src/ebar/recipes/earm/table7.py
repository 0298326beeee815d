"""Table 7: BLEU by the length of the target."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.earm.readings import VARIANTS, Branch, compared, difference_dots
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, elsewhere
from ebar.recipes.earm.translation_settings import cells as all_cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.report.plots import Dots

# Direction and system → BLEU on IWSLT14 of each bin, then of all; the document's bins are [0, 25), [25, 50), [50, ∞).
DOCUMENT = {
    ("de→en", "base"): (37.72, 33.24, 30.86, 34.61),
    ("de→en", "scheduled sampling"): (38.20, 33.76, 31.08, 35.10),
    ("de→en", "scheduled sampling + E-ARM"): (38.37, 33.92, 31.43, 35.36),
    ("it→en", "base"): (35.20, 32.73, 26.86, 32.29),
    ("it→en", "scheduled sampling"): (35.52, 33.25, 26.95, 32.64),
    ("it→en", "scheduled sampling + E-ARM"): (35.56, 33.33, 27.21, 32.82),
    ("es→en", "base"): (43.37, 39.67, 37.14, 40.64),
    ("es→en", "scheduled sampling"): (43.61, 40.00, 37.38, 40.91),
    ("es→en", "scheduled sampling + E-ARM"): (43.84, 40.35, 38.07, 41.58),
}
FIGURE = "BLEU, beam 5"


def cells(scale: str) -> list[Cell]:
    """Those of Table 1 with label smoothing and into English."""
    return [cell for cell in all_cells(scale, variants=VARIANTS) if cell["direction"].endswith("→en")]


def figures(results: Sequence[Result]) -> list[Row]:
    """BLEU of each bin and of all sentences, short ones first; the document's bins are in the same order."""
    rows = []
    edges = results[0][0]["edges"]
    for place, (low, high) in enumerate(zip([0, *edges], [*edges, None], strict=True)):

        def read(branch: Branch, low: int = low) -> Mapping[str, Any] | None:
            return of_bin(branch, low)

        words = f"[{low}, {'∞' if high is None else high})"
        told = {key: bins[place] for key, bins in DOCUMENT.items()}
        rows += compared(results, FIGURE, read, told, words=words)
    told = {key: bins[-1] for key, bins in DOCUMENT.items()}
    return rows + compared(results, FIGURE, lambda branch: branch["bleu"]["5"], told, words="all")


def of_bin(branch: Branch, low: int) -> Mapping[str, Any] | None:
    """BLEU of the bin that begins at `low`, which is the first number in a bin's name."""
    found: dict[int, Mapping[str, Any] | None] = {}
    for name, score in branch["by_length"].items():
        first = re.search(r"\d+", name)
        assert first is not None
        found[int(first.group())] = score
    return found[low]


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    return [difference_dots(rows, "Paired over seeds, by words of the target", "BLEU", "system", "words")]


RECIPE = Experiment(
    title="BLEU by the length of the target, with and without E-ARM",
    source="document 003, Table 7 (IWSLT14, other bins: theirs stand beside ours by rank); the runs of earm/table1",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=replace(READING, elsewhere=lambda cells: None if elsewhere(cells) is None else "IWSLT14, other bins"),
)
