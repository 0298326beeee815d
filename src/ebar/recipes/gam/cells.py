"""One run of `ebar gam`, and the figures that its recipes have in common."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.build.gam import make_gam
from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import read_tree
from ebar.journeys.gam.figures import DRAWS
from ebar.recipes.figures import Figure
from ebar.recipes.gam.settings import departures
from ebar.recipes.recipe import Cell, Reading, Row


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar gam --config` makes of the cell's configuration: its results.json."""
    return make_gam(configured(cell["configuration"]), folder).figures.to_dict()


def configured(tree: Mapping[str, Any]) -> GamConfig:
    """What `ebar gam --config` reads from this tree, written as YAML."""
    return read_tree(tree, MANUAL, GamConfig)


def last(result: Mapping[str, Any], letter: str) -> str:
    """The name of r, or of the last P_λ or π."""
    return str([name for name in result["models"] if name.startswith(letter)][-1])


def of(letter: str, key: str) -> Callable[[Mapping[str, Any]], Any]:
    """Reads one figure of the last model of this kind."""
    return lambda result: result["models"][last(result, letter)][key]


def cost(letter: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Reads its cross-entropy: exact where the run has it so, otherwise that on test strings."""

    def read(result: Mapping[str, Any]) -> dict[str, Any]:
        model = result["models"][last(result, letter)]
        return dict(model.get("exact_cross_entropy", model["cross_entropy"]))

    return read


ENTROPY = Figure(name="entropy", at="entropy_per_token", exact=True)
AMOUNT, SHARE = (0.0, math.inf), (0.0, 1.0)
STANDARD = [
    *(Figure(name=f"cross-entropy of {letter}", at=cost(letter)) for letter in "rPπ"),
    # No model has a lower cross-entropy than the language has entropy.
    *(
        Figure(name=f"CE({letter})/H", at=of(letter, "cross_entropy_over_entropy"), range=(1.0, math.inf))
        for letter in "rπ"
    ),
    *(Figure(name=f"motif frequency of {letter}", at=of(letter, "motif_frequency"), range=SHARE) for letter in "rπ"),
    *(Figure(name=f"mean length of {letter}", at=of(letter, "mean_length"), range=AMOUNT) for letter in "rπ"),
    Figure(name="ℓ1_mom of r", at="moment_distances.r", range=AMOUNT),
    Figure(name="ℓ1_mom of the distilled set", at="moment_distances.distilled", range=AMOUNT),
    Figure(name="ℓ1_mom of π", at="moment_distances.π", range=AMOUNT),
]


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over; of the language itself everything is known."""
    configuration = cells[0]["configuration"]
    if row.name == "entropy" or row.settings.get("model") == "truth":
        return ""
    if row.name.startswith("λ of"):
        return "data and draws, one training"
    if row.name.startswith(("motif frequency", "mean length", "moment of", "ℓ1_mom")):
        size = configuration["distillation"]["size"] if row.name.endswith("distilled set") else DRAWS
        return f"{size:,} draws, one training"
    if configuration["exact"]:
        return "draws for log Z, one training"
    return f"{configuration['data']['test_size']:,} test strings, one training"


READING = Reading(items=items, departures=departures)
