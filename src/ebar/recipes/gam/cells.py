"""One run of `ebar gam`, and the figures that its recipes have in common."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import read_tree
from ebar.journeys.gam.journey import travel
from ebar.journeys.gam.measure import DRAWS, measure
from ebar.recipes.figures import Figure
from ebar.recipes.gam.settings import departures
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_estimate
from ebar.types import Estimate


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The journey that `ebar gam` makes of the cell's configuration, and its figures as plain JSON."""
    gam = configured(cell["configuration"])
    journey = travel(gam, folder)
    found = measure(journey, seed=gam.seed, exact=gam.exact, pool=gam.checks)
    return {
        "entropy": found.entropy,
        "models": {name: _plain(asdict(model)) for name, model in found.models.items()},
        "true_moments": found.true_moments,
        "distances": _plain(found.distances),
        "names": list(found.fitted[0].names),
        "lambda": [
            {"coefficients": one.coefficients.tolist(), "intervals": [interval._asdict() for interval in one.intervals],
             "standard_errors": None if one.covariance is None else one.covariance.diagonal().sqrt().tolist(),
             "seconds": one.seconds}
            for one in found.fitted
        ],
        "seconds": found.seconds,
        "warnings": found.warnings,
        "examples": {name: journey.corpus.text(x) for name, x in journey.examples(3, seed=gam.seed).items()},
    }  # fmt: skip


def configured(tree: Mapping[str, Any]) -> GamConfig:
    """What `ebar gam --config` reads from this tree, written as YAML."""
    return read_tree(tree, MANUAL, GamConfig)


def _plain(tree: Any) -> Any:
    if isinstance(tree, Estimate):
        return tree._asdict()
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def last(result: Mapping[str, Any], letter: str) -> dict[str, Any]:
    """The figures of r, or of the last P or π."""
    names = [name for name in result["models"] if name.split(" ")[0] == letter]
    return dict(result["models"][names[-1]])


def of(letter: str, key: str) -> Callable[[Mapping[str, Any]], Any]:
    """Reads one figure of the last model of this kind."""
    return lambda result: last(result, letter)[key]


def cost(letter: str) -> Callable[[Mapping[str, Any]], Estimate]:
    """Reads its cross-entropy: exact where the run has it so, otherwise that on test strings."""

    def read(result: Mapping[str, Any]) -> Estimate:
        model = last(result, letter)
        found = as_estimate(model["exact"] or model["cross_entropy"])
        assert found is not None
        return found

    return read


def _relative(letter: str) -> Callable[[Mapping[str, Any]], Estimate]:
    def read(result: Mapping[str, Any]) -> Estimate:
        found, entropy = cost(letter)(result), result["entropy"]
        return found._replace(value=found.value / entropy, low=found.low / entropy, high=found.high / entropy)

    return read


ENTROPY = Figure(name="entropy", at="entropy", exact=True)
AMOUNT, SHARE = (0.0, math.inf), (0.0, 1.0)
STANDARD = [
    *(Figure(name=f"cross-entropy of {letter}", at=cost(letter)) for letter in "rPπ"),
    # No model has a lower cross-entropy than the language has entropy.
    *(Figure(name=f"CE({letter})/H", at=_relative(letter), range=(1.0, math.inf)) for letter in "rπ"),
    *(Figure(name=f"motif frequency of {letter}", at=of(letter, "motif_frequency"), range=SHARE) for letter in "rπ"),
    *(Figure(name=f"mean length of {letter}", at=of(letter, "mean_length"), range=AMOUNT) for letter in "rπ"),
    Figure(name="ℓ1_mom of r", at="distances.r", range=AMOUNT),
    Figure(name="ℓ1_mom of the distilled set", at="distances.distilled", range=AMOUNT),
    Figure(name="ℓ1_mom of π", at="distances.π", range=AMOUNT),
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
