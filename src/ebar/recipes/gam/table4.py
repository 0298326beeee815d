"""Document 000, Table 4: two-stage against cyclical training."""

import math
from collections.abc import Sequence
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.gam.cells import FIGURES, curve, gam_experiment, panel
from ebar.recipes.gam.settings import MOTIF, SIZES, cell_for
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import grouped, over_seeds
from ebar.report.plots import Panel

GRID: dict[str, tuple[tuple[int, ...], int]] = {"demo": ((60,), 1), "cpu": ((500, 5000), 3), "paper": (SIZES, 1)}
# Two-stage over cyclical, for each |D|: cross-entropy of π and time.
DOCUMENT: dict[str, dict[int, tuple[float, float]]] = {
    "rs": {500: (1.02, 1.21), 1000: (1.0, 1.48), 5000: (1.04, 0.57), 10_000: (0.98, 1.47), 20_000: (0.99, 2.65)},
    "snis": {500: (1.02, 1.51), 1000: (1.08, 2.04), 5000: (1.0, 0.57), 10_000: (1.02, 0.45), 20_000: (1.0, 0.28)},
}
NAMES = ("cross-entropy two-stage/cyclical", "time two-stage/cyclical")


def cells(scale: str) -> list[Cell]:
    """Both regimes on the same data and r."""
    sizes, seeds = GRID[scale]
    methods = ("snis",) if scale == "demo" else ("rs", "snis")
    return [
        cell_for(scale, motif=MOTIF, ft="1001111", size=size, seed=seed, matching=matching, regime=regime)
        for size in sizes
        for seed in range(seeds)
        for matching in methods
        for regime in ("two_stage", "cyclical")
    ]


def figures(results: Sequence[Result]) -> list[Row]:
    """Ratios, paired over seeds; time is that of all stages."""
    rows = []
    for (matching, size), runs in grouped(results, ("matching", "size")).items():
        known = {(cell["regime"], cell["seed"]): result for cell, result in runs}
        seeds = sorted({seed for _, seed in known})
        beside = DOCUMENT[matching].get(size, (None, None))
        for name, read, document in zip(NAMES, (_cost, _time), beside, strict=True):
            ratios = [read(known["two_stage", seed]) / read(known["cyclical", seed]) for seed in seeds]
            rows.append(over_seeds(name, {"matching": matching, "size": size}, ratios, document=document))
    return rows


def _cost(result: dict[str, Any]) -> float:
    found = FIGURES["cross-entropy of π"](result)
    assert found is not None
    return found.value


def _time(result: dict[str, Any]) -> float:
    return math.fsum(float(seconds) for stage, seconds in result["seconds"].items() if stage != "r")


def panels(rows: Sequence[Row]) -> list[Panel]:
    """One for each ratio."""
    methods = list(dict.fromkeys(row.settings["matching"] for row in rows))
    return [
        panel(name, "two-stage / cyclical", [curve(rows, name, method, matching=method) for method in methods],
              {"equal": 1.0})
        for name in NAMES
    ]  # fmt: skip


RECIPE = gam_experiment(
    title="Two-stage against cyclical training, motif 10001011111000, ft 1001111",
    source="document 000, Table 4",
    cells=cells,
    figures=figures,
    panels=panels,
)
