"""The contrastive term by itself, from scratch and after pre-training: the document found that it does not work."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ebar.journeys.forked import Branch
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.recipes.earm.language_modelling import Objectives, Task, plain, task_of, train_branches
from ebar.recipes.earm.language_settings import SHARED, cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import over_seeds
from ebar.report.plots import Line, Panel
from ebar.types import Objective

CORPUS = {"demo": "toy", "cpu": "enwik8-10m", "paper": "wikitext-103"}
SEEDS = {"demo": 2, "cpu": 3, "paper": 3}
# Windows as long as the fakes: the term sees all of the text that the cross-entropy sees.
SMALLER: dict[str, dict[str, Any]] = {
    "demo": {"tokens": 1000, "held_out": 300, "epochs": 2, "start_epoch": 1, "earm": {"weight": 0.05}},
    "cpu": {"tokens": 50_000, "held_out": 40_000, "window": 50, "rows": 32, "epochs": 6, "start_epoch": 3},
    "paper": {"window": 50, "rows": 80},
}
# Name → whether log q̃ of the data is in, and whether training begins with it. Equation 12 has it.
ALONE = {
    "equation 12 alone, from scratch": (True, True),
    "without its data term, from scratch": (False, True),
    "equation 12 alone, after pre-training": (True, False),
    "without its data term, after pre-training": (False, False),
}
BASE, BOTH = "cross-entropy", "cross-entropy and E-ARM"
COST = "held-out nats per token"
DIFFERENCE = "held-out nats per token at the end, minus that of cross-entropy, paired"


def cells(scale: str) -> list[Cell]:
    """One run a seed."""
    return [cell_for(scale, CORPUS[scale], seed, **SMALLER[scale]) for seed in range(SEEDS[scale])]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All ways from the same first weights, over the same batches; those after pre-training from the same trunk."""
    task = task_of(cell)

    def alone(data_term: bool) -> Callable[[Autoregressive], Objective]:
        return lambda model: Earm(model=model, weight=1.0, cross_entropy=False, data_term=data_term, window=None)

    def both(model: Autoregressive) -> Objective:
        return Earm(model=model, **cell["earm"])

    later = {name: alone(data_term) for name, (data_term, scratch) in ALONE.items() if not scratch}
    found = _trained(cell, task, folder / "pretrained", plain, {BASE: plain, BOTH: both, **later})
    for name, (data_term, scratch) in ALONE.items():
        if scratch:
            found |= _trained(cell, task, folder / f"scratch-{data_term}", alone(data_term), {name: alone(data_term)})
    return {name: {"validation": branch.curve("validation.loss")} for name, branch in found.items()}


def _trained(
    cell: Cell, task: Task, folder: Path, trunk: Callable[[Autoregressive], Objective], branches: Objectives
) -> dict[str, Branch]:
    # A branch's name is that of its folder too.
    named = {f"branch-{place}": objective for place, objective in enumerate(branches.values())}
    return dict(zip(branches, train_branches(cell, task, folder, trunk, named).values(), strict=True))


def figures(results: Sequence[Result]) -> list[Row]:
    """Held-out cost by epoch, and at the end beside that of cross-entropy."""
    rows = []
    costs = {
        name: [[float(value) for _, value in result[name]["validation"]] for _, result in results]
        for name in results[0][1]
    }
    for name, curves in costs.items():
        for epoch, values in enumerate(zip(*curves, strict=True), 1):
            rows.append(over_seeds(COST, {"trained by": name, "epoch": epoch}, list(values), least=0.0))
    for name, curves in costs.items():
        if name != BASE:
            differences = [curve[-1] - base[-1] for curve, base in zip(curves, costs[BASE], strict=True)]
            told = "did not work well" if name == "equation 12 alone, from scratch" else None
            settings = {"trained by": name, "epoch": len(curves[0])}
            rows.append(over_seeds(DIFFERENCE, settings, differences, document=told))
    return rows


def panels(rows: Sequence[Row]) -> list[Panel]:
    """The curves."""
    own = [row for row in rows if row.name == COST]
    lines = []
    for name in dict.fromkeys(str(row.settings["trained by"]) for row in own):
        points = [row for row in own if row.settings["trained by"] == name]
        y = [row.value or 0.0 for row in points]
        lines.append(
            Line(
                name=name,
                x=[float(row.settings["epoch"]) for row in points],
                y=y,
                low=[value if row.low is None else row.low for row, value in zip(points, y, strict=True)],
                high=[value if row.high is None else row.high for row, value in zip(points, y, strict=True)],
                dashed=name in ALONE,
            )
        )
    return [Panel(title="Held-out cost", x_label="epoch", y_label="nats per token", lines=lines)]


RECIPE = Experiment(
    title="E-ARM without cross-entropy",
    source="document 003, section 4: training from scratch by equation 12 alone did not work well; "
    "at scale cpu a slice of enwik8",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(shared=SHARED),
)
