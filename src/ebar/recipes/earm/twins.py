"""Twins: runs of `ebar train` that differ in their objective only, trained once as far as they are alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.build.train import build_corpus, train_as, train_branches
from ebar.config.train import TrainConfig
from ebar.data.corpus import Corpus
from ebar.journeys.train import Trained
from ebar.models.construction import Autoregressive
from ebar.recipes.figures import found
from ebar.recipes.pieces import Cell, Figure, Grid, Result
from ebar.recipes.training import configuration, grouped_options
from ebar.training.optimisers import SCHEDULES, for_steps
from ebar.types import Clock

PAPER = "Wang et al. 2022"
BASE, EARM = "base", "earm"
PAIRED = ", paired difference"
# The paper stops after 20 epochs without a better validation loss; smaller scales train as long as is said.
COMMON = {
    "schedule.kind": "inverse_square_root", "training.clip": 1.0, "earm.weight": 0.05,
    "training.patience": {"demo": 1000, "cpu": 1000, "paper": 20},
}  # fmt: skip
LEFT = "share of the integrated learning rate left to E-ARM"


def twin_grid(common: Mapping[str, Any], axes: Mapping[str, Any], **more: Any) -> Grid:
    """Runs whose settings are options of `ebar train`, by the names that they have on the command line.

    `earm.weight` and the like are options of the twins' objective, of which `twins` gives each its own; `measures.` is
    what is measured. What has no dot in its name is what a run is called by in tables.
    """
    return Grid(common={**COMMON, **common}, axes=axes, make=_cell, **more)


def _cell(settings: dict[str, Any]) -> Cell:
    labels, groups = grouped_options({"objective.kind": "maximum_likelihood", **settings})
    earm, measures = groups.pop("earm", {}), groups.pop("measures", {})
    twins = {name: {"kind": "earm", **earm, **own} for name, own in labels.pop("twins", {EARM: {}}).items()}
    return {**labels, "configuration": {"seed": labels["seed"], **groups}, "twins": twins, "measures": measures}


def configurations(cell: Cell, folder: Path) -> dict[str, TrainConfig]:
    """As `ebar train --config` reads them: that of the cell, and those with another objective."""
    tree = cell["configuration"]
    objectives = {BASE: tree["objective"], **cell["twins"]}
    return {name: configuration(tree, folder, objective=objective) for name, objective in objectives.items()}


def train_twins(cell: Cell, folder: Path) -> tuple[Corpus, dict[str, Trained[Autoregressive]]]:
    """The data, and every twin; those whose objective comes in at once share no epoch with the base."""
    runs = configurations(cell, folder)
    corpus = build_corpus(runs[BASE])
    starts = {name: start for name, own in cell["twins"].items() if (start := own.get("start_epoch", 0)) > 0}
    alike = {name: run for name, run in runs.items() if name == BASE or name in starts}
    twins = train_branches(alike, folder, epochs=min(starts.values()), data=corpus)
    alone = {name: train_as(run, folder / name, data=corpus) for name, run in runs.items() if name not in alike}
    return corpus, {name: (twins | alone)[name] for name in runs}


def run_curves(cell: Cell, folder: Path) -> dict[str, Any]:
    """All twins, trained: what was logged of them, and nothing measured afterwards."""
    return {"twins": {name: {"curves": curves(twin)} for name, twin in train_twins(cell, folder)[1].items()}}


def curves(twin: Trained[Autoregressive]) -> dict[str, list[tuple[int, float]]]:
    """What was logged: (step, value)."""
    names = {"training": "nll_per_token", "validation": "validation.loss", "effective_share": "effective_share"}
    return {name: twin.history.curve(key) for name, key in names.items()}


def share_of_learning(cell: Cell, start: int, curve: Sequence[Sequence[int | float]]) -> float:
    """The integral of the learning rate after the start epoch, as a share of the whole: how far E-ARM can move weights.

    A schedule that ends at 0 leaves little to what comes in late. `curve` has the last step of each epoch.
    """
    ends = [int(step) for step, _ in curve]
    options = dict(cell["configuration"]["schedule"])
    schedule = for_steps(SCHEDULES.make(options.pop("kind"), options), ends[-1])
    factors: list[float] = [schedule.factor(Clock(step, sum(end <= step for end in ends))) for step in range(ends[-1])]
    return sum(factors[ends[start - 1] if start else 0 :]) / sum(factors)


def best_epoch(curve: Sequence[Sequence[int | float]]) -> int:
    """Counted from 1: that whose weights are measured."""
    costs = [cost for _, cost in curve]
    return 1 + costs.index(min(costs))


def each_twin(label: Callable[[Cell, str], Mapping[str, Any]]) -> Callable[[Cell, dict[str, Any]], Iterator[Result]]:
    """A run as one for each twin, with what `label` makes of its name among the settings; none where that is empty."""

    def parts(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
        for name, own in result["twins"].items():
            if said := label(cell, name):
                yield {**cell, **said}, own

    return parts


def gain(path: str) -> Callable[..., float]:
    """Reads a figure of the E-ARM twin less that of the base, of one run; `path` is within a twin's result."""
    return lambda result, **each: float(
        found(result, f"twins.{EARM}.{path}", **each).value - found(result, f"twins.{BASE}.{path}", **each).value
    )


def paired_figures(name: str, key: str, against: Mapping[str, str], **more: Any) -> list[Figure]:
    """A figure, and what it is more than that of another value of one setting, paired by seed."""
    return [
        Figure(name=name, **more),
        Figure(
            name=name + PAIRED,
            minus=lambda cell: {key: against.get(cell[key], cell[key])},
            about=lambda runs: {key: f"{runs[0][0][key]} − {against[runs[0][0][key]]}"},
            **more,
        ),
    ]


def paper_figures(table: Mapping[Any, Sequence[float]], columns: Sequence[Any], *keys: str) -> Any:
    """Reads a paper's figure from a table: its rows by all of these settings but the last, its columns by the last."""
    known = {(*row, *place): value for row, values in table.items()
             for *place, value in zip(columns, values, strict=True)}  # fmt: skip
    return lambda settings: known.get(tuple(settings[key] for key in keys))
