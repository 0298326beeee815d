"""Table 4: λ against the epoch in which E-ARM starts."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.earm.language_modelling import run_twins
from ebar.recipes.earm.language_settings import cell_for
from ebar.recipes.earm.table3 import nats
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_estimate, over_seeds
from ebar.report.plots import Line, Panel

WEIGHTS = {"demo": [0.05, 0.5], "cpu": [0.01, 0.05, 0.5], "paper": [0.01, 0.05, 0.1, 0.5]}
STARTS = {"demo": [1, 2], "cpu": [1, 3, 4], "paper": [5, 15, 25]}
CORPUS = {"demo": "toy", "cpu": "enwik8-10m", "paper": "wikitext-103"}
SEEDS = {"demo": 1, "cpu": 1, "paper": 3}
PERPLEXITY = "perplexity per token"
DIFFERENCE = "nats per token, E-ARM − without, paired over windows"
# (λ, start epoch) → perplexity on WikiText-103, of 40 epochs.
DOCUMENT = {
    (0.0, 5): 30.56, (0.0, 15): 30.56, (0.0, 25): 30.56, (0.01, 5): 30.48, (0.01, 15): 30.12, (0.01, 25): 30.22,
    (0.05, 5): 30.43, (0.05, 15): 29.89, (0.05, 25): 30.16, (0.1, 5): 30.60, (0.1, 15): 30.03, (0.1, 25): 30.14,
    (0.5, 5): 30.71, (0.5, 15): 30.36, (0.5, 25): 30.47,
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """One run for each start: all λ fork from its trunk."""
    return [
        cell_for(scale, CORPUS[scale], seed, start_epoch=start, weights=WEIGHTS[scale])
        for seed in range(SEEDS[scale])
        for start in STARTS[scale]
    ]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base, and a twin for each λ."""
    return run_twins(cell, folder, {str(weight): {**cell["earm"], "weight": weight} for weight in cell["weights"]})


def figures(results: Sequence[Result]) -> list[Row]:
    """Perplexity of each λ and start, and how far it is from that of its own base."""
    rows = []
    for cell, result in results:
        for name in result:
            weight = 0.0 if name == "base" else float(name)
            settings = {"λ": weight, "start epoch": cell["start_epoch"], "seed": cell["seed"]}
            told = DOCUMENT.get((weight, cell["start_epoch"])) if cell["corpus"] == CORPUS["paper"] else None
            value = math.exp(nats(result, name))
            rows.append(Row(name=PERPLEXITY, settings=settings, value=value, low=None, high=None, document=told))
            if name != "base":
                rows.append(
                    over_seeds(DIFFERENCE, settings, [nats(result, name) - nats(result, "base")],
                               single=as_estimate(result[name]["difference"]))
                )  # fmt: skip
    return rows


def windows(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    held_out = cells[0]["held_out"]
    count = "all" if held_out is None else f"{held_out // cells[0]['window']:,}"
    return f"{count} windows of the test text, one training"


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Perplexity against the start, a line for each λ."""
    own = [row for row in rows if row.name == PERPLEXITY]
    weights = sorted({row.settings["λ"] for row in own})
    lines = []
    for weight in weights:
        points = sorted(
            (float(row.settings["start epoch"]), row.value or 0.0) for row in own if row.settings["λ"] == weight
        )
        lines.append(Line(name=f"λ = {weight:g}", x=[x for x, _ in points], y=[y for _, y in points]))
    return [Panel(title="Perplexity", x_label="start epoch", y_label="perplexity per token", lines=lines)]


RECIPE = Experiment(
    title="How λ and the start epoch of E-ARM matter to a language model",
    source="document 003, Table 4 (WikiText-103, 40 epochs); at scale cpu enwik8, 5 epochs",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(
        items=windows,
        departures=lambda cells: [
            "Differences of single trainings: an interval over windows says nothing of another seed, and differences "
            "between λ or start epochs may be those between trainings."
        ],
    ),
)
