"""Document 000, Table 1: rejection against importance sampling in Training-1."""

from collections.abc import Callable, Sequence
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.gam.cells import FIGURES, curve, gam_experiment, panel
from ebar.recipes.gam.settings import MOTIF, SIZES, cell_for
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import grouped, over_seeds
from ebar.report.plots import Panel

SETTINGS: dict[str, dict[str, Any]] = {
    "m": {"ft": "1011111", "presence": 1.0},
    "mam": {"ft": "1001111", "presence": 0.9},
}
GRID: dict[str, tuple[tuple[int, ...], int]] = {"demo": ((60,), 1), "cpu": ((500, 5000), 3), "paper": (SIZES, 1)}
# rs over snis, for each |D|: motif frequency, cross-entropy, time of Training-1.
DOCUMENT: dict[str, dict[int, tuple[float, float, float]]] = {
    "m": {500: (0.998, 0.967, 2.92), 1000: (1.009, 0.973, 2.038), 5000: (0.995, 0.967, 0.756),
          10_000: (1.134, 0.956, 1.514), 20_000: (1.497, 0.961, 0.938)},
    "mam": {500: (0.997, 1.003, 4.7), 1000: (0.77, 1.07, 3.638), 5000: (1.12, 0.99, 1.365),
            10_000: (1.011, 1.002, 1.005), 20_000: (0.965, 1.005, 0.975)},
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """Both ways of Training-1 on the same data."""
    sizes, seeds = GRID[scale]
    return [
        cell_for(scale, motif=MOTIF, size=size, seed=seed, matching=matching, **settings)
        for settings in SETTINGS.values()
        for size in sizes
        for seed in range(seeds)
        for matching in ("rs", "snis")
    ]


def figures(results: Sequence[Result]) -> list[Row]:
    """Ratios rs/snis, paired over seeds."""
    rows = []
    for (presence, size), runs in grouped(results, ("presence", "size")).items():
        language = "m" if presence == 1 else "mam"
        known = {(cell["matching"], cell["seed"]): result for cell, result in runs}
        seeds = sorted({seed for _, seed in known})
        beside = DOCUMENT[language].get(size, (None, None, None))
        for name, document, read in zip(RATIOS, beside, RATIOS.values(), strict=True):
            ratios = [read(known["rs", seed]) / max(read(known["snis", seed]), 1e-12) for seed in seeds]
            rows.append(over_seeds(name, {"language": language, "size": size}, ratios, document=document))
    return rows


def _figure(name: str, result: dict[str, Any]) -> float:
    found = FIGURES[name](result)
    assert found is not None
    return found.value


RATIOS: dict[str, Callable[[dict[str, Any]], float]] = {
    "motif frequency rs/snis": lambda result: _figure("motif frequency of π", result),
    "cross-entropy rs/snis": lambda result: _figure("cross-entropy of π", result),
    "time of Training-1 rs/snis": lambda result: float(result["lambda"][0]["seconds"]),
}


def panels(rows: Sequence[Row]) -> list[Panel]:
    """One for each ratio."""
    return [
        panel(
            name, "rs / snis", [curve(rows, name, language, language=language) for language in SETTINGS], {"equal": 1.0}
        )
        for name in RATIOS
    ]


RECIPE = gam_experiment(
    title="Training-1 by rejection against importance sampling, motif 10001011111000",
    source="document 000, Table 1",
    cells=cells,
    figures=figures,
    panels=panels,
)
