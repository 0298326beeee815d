"""How many recent factors of log q̃ have a gradient (equation 11): the document found two to be best."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.earm.language_modelling import run_twins
from ebar.recipes.earm.language_settings import SEEDS, SHARED, cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_dot, over_seeds
from ebar.report.plots import Dots

CORPUS = {"demo": "toy", "cpu": "enwik8-10m", "paper": "wikitext-103"}
RECENT: dict[str, list[int | None]] = {
    "demo": [0, 2, None],
    "cpu": [0, 1, 2, 3, 5, None],
    "paper": [0, 1, 2, 3, 5, None],
}
# Seven branches in one run: less text than in Table 3.
SMALLER: dict[str, dict[str, Any]] = {
    "demo": {"epochs": 3},
    "cpu": {"tokens": 60_000, "held_out": 40_000, "window": 50, "rows": 32},
    "paper": {},
}
COST = "test nats per token"
FROM_BASE = "test nats per token, E-ARM − without, paired"
FROM_TWO = "test nats per token, m − 2, paired"


def cells(scale: str) -> list[Cell]:
    """One run a seed: a trunk, and a twin for each m."""
    return [
        cell_for(scale, CORPUS[scale], seed, recent=RECENT[scale], **SMALLER[scale]) for seed in range(SEEDS[scale])
    ]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base, and a twin for each m."""
    return run_twins(cell, folder, {name_of(m): {**cell["earm"], "recent": m} for m in cell["recent"]})


def name_of(m: int | None) -> str:
    """None: every factor."""
    return "all" if m is None else str(m)


def figures(results: Sequence[Result]) -> list[Row]:
    """Of each m: the cost, and what it is more than without E-ARM and than with m = 2."""
    rows = []
    costs = {name: [float(result[name]["nats_per_token"]["value"]) for _, result in results] for name in results[0][1]}
    for name, values in costs.items():
        settings = {"m": "without E-ARM" if name == "base" else name}
        rows.append(over_seeds(COST, settings, values, document="best" if name == "2" else None))
    for other, figure in (("base", FROM_BASE), ("2", FROM_TWO)):
        for name, values in costs.items():
            if name not in ("base", other):
                differences = [one - two for one, two in zip(values, costs[other], strict=True)]
                told = "above 0" if other == "2" else None
                rows.append(over_seeds(figure, {"m": name}, differences, document=told))
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Both differences."""
    return [
        Dots(
            title=title, x_label="test nats per token",
            rows={f"m = {row.settings['m']}": as_dot(row) for row in rows if row.name == figure},
        )
        for figure, title in ((FROM_BASE, "E-ARM − without, paired"), (FROM_TWO, "m − 2, paired"))
    ]  # fmt: skip


RECIPE = Experiment(
    title="How many recent factors E-ARM's gradient goes through",
    source="document 003, equation 11 and its footnote 4; at scale cpu a slice of enwik8",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(shared=SHARED),
)
