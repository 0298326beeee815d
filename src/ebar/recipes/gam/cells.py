"""One run of a GAM recipe, and what is common to all of them: figures over seeds, curves against |D|."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ebar.journeys.gam.journey import travel
from ebar.journeys.gam.measure import DRAWS, measure
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.gam.settings import departures, gam_of
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_estimate, grouped, over_seeds
from ebar.report.plots import Line, Panel
from ebar.types import Estimate


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The journey of a cell, and its figures as plain JSON."""
    gam = gam_of(cell)
    journey = travel(gam, folder)
    found = measure(journey, seed=gam.seed, exact=gam.exact, pool=cell["pool"])
    drawn = {name: journey.corpus.text(x) for name, x in journey.examples(3, seed=gam.seed).items()}
    return {
        "entropy": found.entropy,
        "models": {name: _plain(asdict(model)) for name, model in found.models.items()},
        "true_moments": found.true_moments,
        "distilled_moments": _plain(found.distilled_moments),
        "distances": _plain(found.distances),
        "divergence": found.divergence._asdict(),
        "names": list(found.fitted[0].names),
        "lambda": [
            {"coefficients": one.coefficients.tolist(), "intervals": [interval._asdict() for interval in one.intervals],
             "standard_errors": None if one.covariance is None else one.covariance.diagonal().sqrt().tolist(),
             "seconds": one.seconds, "draws": one.draws}
            for one in found.fitted
        ],
        "acceptance_rate": None if found.acceptance_rate is None else found.acceptance_rate.value,
        "seconds": found.seconds,
        "warnings": found.warnings,
        "examples": drawn,
    }  # fmt: skip


def _plain(tree: Any) -> Any:
    if isinstance(tree, Estimate):
        return tree._asdict()
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def gam_experiment(
    *, title: str, source: str, cells: Callable[[str], list[Cell]],
    figures: Callable[[Sequence[Result]], list[Row]], panels: Callable[[Sequence[Row]], list[Panel]],
    reading: Reading | None = None,
) -> Experiment:  # fmt: skip
    """A recipe made of cells of this kind."""
    reading = reading or Reading()
    own = reading.departures
    reading = replace(reading, ranges=RANGES, departures=lambda cells: own(cells) + departures(cells))
    if not reading.items:
        reading = replace(reading, items=items)
    return Experiment(
        title=title, source=source, cells=cells, work=run_cell, figures=figures, panels=panels, reading=reading
    )


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over; of the language itself everything is known."""
    if row.name == "entropy" or row.settings.get("model") == "truth":
        return ""
    if row.name.startswith("λ of"):
        return "data and draws, one training"
    if row.name.startswith(("motif frequency", "mean length", "moment of")):
        return f"{DRAWS:,} draws, one training"
    if row.name.startswith("ℓ1_mom"):
        size = cells[0]["distil"] if row.name.endswith("distilled set") else DRAWS
        return f"{size:,} draws, one training"
    if cells[0]["exact"]:
        return "draws for log Z, one training"
    return f"{cells[0]['test_size']:,} test strings, one training"


def last(result: dict[str, Any], letter: str) -> dict[str, Any]:
    """The figures of the last P or π of a journey, or of r."""
    names = [name for name in result["models"] if name.split(" ")[0] == letter]
    return dict(result["models"][names[-1]])


# Figure → how to read it from a run's result; cross-entropies are exact where the run has them so.
FIGURES: dict[str, Callable[[dict[str, Any]], Estimate | None]] = {
    "cross-entropy of r": lambda result: _cost(last(result, "r")),
    "cross-entropy of P": lambda result: _cost(last(result, "P")),
    "cross-entropy of π": lambda result: _cost(last(result, "π")),
    "CE(r)/H": lambda result: _over(_cost(last(result, "r")), result["entropy"]),
    "CE(π)/H": lambda result: _over(_cost(last(result, "π")), result["entropy"]),
    "motif frequency of r": lambda result: as_estimate(last(result, "r")["motif_frequency"]),
    "motif frequency of π": lambda result: as_estimate(last(result, "π")["motif_frequency"]),
    "mean length of r": lambda result: as_estimate(last(result, "r")["mean_length"]),
    "mean length of π": lambda result: as_estimate(last(result, "π")["mean_length"]),
    "ℓ1_mom of r": lambda result: as_estimate(result["distances"]["r"]),
    "ℓ1_mom of the distilled set": lambda result: as_estimate(result["distances"]["distilled"]),
    "ℓ1_mom of π": lambda result: as_estimate(result["distances"]["π"]),
}


ANY = (0.0, math.inf)
RANGES = {
    **{name: (0.0, 1.0) for name in FIGURES if name.startswith("motif frequency")},
    **{name: ANY for name in FIGURES if name.startswith(("ℓ1_mom", "mean length"))},
    # No model has a lower cross-entropy than the language has entropy.
    **{name: (1.0, math.inf) for name in FIGURES if name.endswith("/H")},
}


def _cost(model: dict[str, Any]) -> Estimate:
    found = as_estimate(model["exact"] or model["cross_entropy"])
    assert found is not None
    return found


def _over(value: Estimate, divisor: float) -> Estimate:
    return value._replace(value=value.value / divisor, low=value.low / divisor, high=value.high / divisor)


def standard_rows(results: Sequence[Result], keys: Sequence[str], figures: Sequence[str] = tuple(FIGURES)) -> list[Row]:
    """Every figure, for every group of runs that differ in their seed alone."""
    rows = []
    for group, runs in grouped(results, keys).items():
        settings = dict(zip(keys, group, strict=True))
        for figure in figures:
            found = [FIGURES[figure](result) for _, result in runs]
            values = [one for one in found if one is not None]
            if values:
                rows.append(over_seeds(figure, settings, values))
    return rows


def entropy_rows(results: Sequence[Result], keys: Sequence[str]) -> list[Row]:
    """H of the language, exact."""
    return [
        Row(name="entropy", settings=dict(zip(keys, group, strict=True)), value=runs[0][1]["entropy"],
            low=runs[0][1]["entropy"], high=runs[0][1]["entropy"])
        for group, runs in grouped(results, keys).items()
    ]  # fmt: skip


def curve(rows: Sequence[Row], figure: str, name: str, *, dashed: bool = False, **settings: Any) -> Line:
    """A figure against |D|, for the rows with these settings."""
    own = [row for row in rows if row.name == figure and all(row.settings[key] == settings[key] for key in settings)]
    own.sort(key=lambda row: row.settings["size"])
    values = [float("nan") if row.value is None else row.value for row in own]
    return Line(
        name=name,
        x=[float(row.settings["size"]) for row in own],
        y=values,
        low=[value if row.low is None else row.low for row, value in zip(own, values, strict=True)],
        high=[value if row.high is None else row.high for row, value in zip(own, values, strict=True)],
        dashed=dashed,
    )


def panel(title: str, y_label: str, lines: Sequence[Line], levels: dict[str, float] | None = None) -> Panel:
    """Axes with |D| below."""
    return Panel(title=title, x_label="|D|", y_label=y_label, lines=lines, levels=levels, log_x=True)
