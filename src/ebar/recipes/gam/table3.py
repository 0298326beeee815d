"""Document 000, Table 3: all motifs and feature sets together."""

import math
from collections.abc import Sequence

from ebar.recipes.experiment import Result
from ebar.recipes.gam.cells import FIGURES, curve, gam_experiment, panel
from ebar.recipes.gam.settings import MIXED, PURE, SIZES, cell_for
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import grouped
from ebar.report.plots import Panel

PURE_SETS = ("1001111", "1011111", "0111111")
GRID = {"demo": ((60,), 1, 1), "cpu": ((500,), 5, 1), "paper": (SIZES, 5, 3)}  # sizes, motifs, feature sets
# Mean ± standard deviation, and the range of the last.
DOCUMENT = {
    "m": {500: ("1.24 ± 0.07", "1.19 ± 0.07", "32 … 392"), 1000: ("1.24 ± 0.07", "1.16 ± 0.07", "23.87 … 653.33"),
          5000: ("1.18 ± 0.08", "1.09 ± 0.05", "3.59 … 206.67"), 10_000: ("1.08 ± 0.1", "1.04 ± 0.02", "0.89 … 196"),
          20_000: ("0.99 ± 0.01", "1.02 ± 0.01", "0.81 … 1.76")},
    "mam": {500: ("1.23 ± 0.03", "1.16 ± 0.03", "59.26 … 433.33"),
            1000: ("1.21 ± 0.03", "1.14 ± 0.03", "26.29 … 233.33"), 5000: ("1.16 ± 0.05", "1.08 ± 0.04", "7.32 … 130"),
            10_000: ("1.02 ± 0.03", "1.04 ± 0.03", "1 … 4.97"), 20_000: ("0.99 ± 0", "1.02 ± 0", "0.85 … 1.04")},
}  # fmt: skip
NAMES = ("CE(r)/CE(π)", "CE(π)/H", "motif frequency π/r")


def cells(scale: str) -> list[Cell]:
    """At scale cpu one feature set for each motif, and Training-1 by newton, where rejection would take hours."""
    sizes, motifs, sets = GRID[scale]
    matching = "rs" if scale == "paper" else "newton"
    pure = [(motif, 1.0, ft) for motif in PURE[:motifs] for ft in PURE_SETS[:sets]]
    mixed = [(motif, 0.9, "1001111") for motif in MIXED[:motifs]]
    return [
        cell_for(scale, motif=motif, ft=ft, size=size, seed=0, presence=presence, matching=matching)
        for size in sizes
        for motif, presence, ft in pure + mixed
    ]


def figures(results: Sequence[Result]) -> list[Row]:
    """The mean ± one standard deviation over motifs and feature sets, as in the document; ratios with their range."""
    rows = []
    for (presence, size), runs in grouped(results, ("presence", "size")).items():
        language = "m" if presence == 1 else "mam"
        settings = {"language": language, "size": size, "runs": len(runs)}
        read = {name: [_value(name, result) for _, result in runs] for name in FIGURES}
        before, after = read["cross-entropy of r"], read["cross-entropy of π"]
        columns = (
            [r / student for r, student in zip(before, after, strict=True)],
            read["CE(π)/H"],
            [student / max(r, 1 / 2000) for r, student in
             zip(read["motif frequency of r"], read["motif frequency of π"], strict=True)],
        )  # fmt: skip
        beside = DOCUMENT[language].get(size, (None, None, None))
        for name, values, document in zip(NAMES, columns, beside, strict=True):
            mean = math.fsum(values) / len(values)
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
            low, high = (min(values), max(values)) if name == NAMES[2] else (mean - spread, mean + spread)
            rows.append(Row(name=name, settings=settings, value=mean, low=low, high=high, document=document))
    return rows


def spread(row: Row, cells: Sequence[Cell]) -> str:
    """As in the document's table."""
    what = "least and greatest" if row.name == NAMES[2] else "± one standard deviation"
    return f"no interval: {what} of {row.settings['runs']} runs, each with its own motif and features"


def _value(name: str, result: dict[str, object]) -> float:
    found = FIGURES[name](result)
    return math.nan if found is None else found.value


def panels(rows: Sequence[Row]) -> list[Panel]:
    """The first two columns."""
    return [
        panel(name, name, [curve(rows, name, language, language=language) for language in ("m", "mam")], {"1": 1.0})
        for name in NAMES[:2]
    ]


RECIPE = gam_experiment(
    title="Overall statistics over motifs and feature sets",
    source="document 000, Table 3",
    cells=cells,
    figures=figures,
    panels=panels,
    reading=Reading(items=spread),
)
