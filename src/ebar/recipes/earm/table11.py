"""Table 11: seconds per 100 iterations, of every way to train."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.recipes.earm.translation import build, objectives
from ebar.recipes.earm.translation_data import task_of
from ebar.recipes.earm.translation_settings import cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots
from ebar.training.budgeted import Budgeted
from ebar.types import Clock, Objective

# Seconds on a V100, 12 layers.
DOCUMENT = {
    "base": 27.3,
    "scheduled sampling": 30.1,
    "E-ARM": 145.8,
    "E-ARM, scheduled sampling": 149.2,
    "Langevin, 20 steps": 630.6,
    "Langevin, 50 steps": 1452.3,
}
ROUNDS = {"demo": 6, "cpu": 25, "paper": 100}
# Updates by maximum likelihood beforehand: a model that cannot yet end a sentence draws longer ones.
UPDATES = {"demo": 5, "cpu": 300, "paper": 4000}
RATIO = "times the base"
STILL = 1e-6  # learning rate while the clock runs: all methods see one model


def cells(scale: str) -> list[Cell]:
    """One run: in it, methods take turns on the same batches, so that a busy machine slows all or none."""
    return [
        cell_for(
            scale, variant="base", direction="de→en", seed=0, rounds=ROUNDS[scale], updates=UPDATES[scale],
            langevin=[20, 50],
        )
    ]  # fmt: skip


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Seconds of each update; those of the first round, which warms the caches, left out."""
    torch.manual_seed(cell["seed"])
    generator = Generator().manual_seed(cell["seed"])
    task = task_of(cell)
    model = build(cell, task).train()
    batches = Budgeted(data=task.train, tokens=cell["tokens"], seed=cell["seed"])
    stream = _endless(batches)
    optimiser = torch.optim.Adam(model.parameters(), cell["learning_rate"])
    last = cell["epochs"] * len(batches)
    methods = methods_of(cell, model, last)
    clock = Clock(last, cell["epochs"])
    for _ in range(cell["updates"]):
        update(methods["base"], next(stream), clock, optimiser, generator)
    for group in optimiser.param_groups:
        group["lr"] = STILL
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(cell["rounds"] + 1):
        batch = next(stream)
        for name, objective in methods.items():
            begin = time.perf_counter()
            update(objective, batch, clock, optimiser, generator)
            if number:
                seconds[name].append(time.perf_counter() - begin)
    return {"seconds": seconds}


def methods_of(cell: Cell, model: Autoregressive, last: int) -> dict[str, Objective]:
    """As at the last step of training, when scheduled sampling takes both passes."""
    plain = objectives(cell, last)
    scheduled = objectives({**cell, "scheduled_sampling": True}, last)
    found = {
        "base": plain["base"](model),
        "scheduled sampling": scheduled["base"](model),
        "E-ARM": plain["earm"](model),
        "E-ARM, scheduled sampling": scheduled["earm"](model),
    }
    for steps in cell["langevin"]:
        options: dict[str, Any] = {**cell["earm"], "langevin_steps": steps}
        found[f"Langevin, {steps} steps"] = Earm(model=model, negatives="langevin", **options)
    return found


def update(
    objective: Objective, batch: Any, clock: Clock, optimiser: torch.optim.Optimizer, generator: Generator
) -> None:
    """The loss, its gradient and the optimiser's step."""
    (loss,) = objective.losses(batch, clock, generator=generator)
    optimiser.zero_grad()
    loss.value.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _endless(batches: Budgeted) -> Iterator[Any]:
    epoch = 0
    while True:
        yield from batches.at(epoch, 0)
        epoch += 1


def figures(results: Sequence[Result]) -> list[Row]:
    """Medians over rounds: of the seconds, and of the ratio to the base within a round."""
    rows = []
    ((_, result),) = results
    base = result["seconds"]["base"]
    for name, seconds in result["seconds"].items():
        settings = {"method": name}
        hundred = [100 * float(one) for one in seconds]
        rows.append(median_row("seconds per 100 iterations", settings, hundred, DOCUMENT.get(name)))
    for name, seconds in result["seconds"].items():
        if name != "base":
            ratios = [float(one) / float(other) for one, other in zip(seconds, base, strict=True)]
            told = round(DOCUMENT[name] / DOCUMENT["base"], 2) if name in DOCUMENT else None
            rows.append(median_row(RATIO, {"method": name}, ratios, told))
    return rows


def median_row(name: str, settings: dict[str, Any], values: Sequence[float], document: float | None) -> Row:
    """The median with its 95 % interval by the sign test, which asks nothing of the times but independence."""
    from scipy.stats import binom

    count, ordered = len(values), sorted(values)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    rank = int(binom.ppf(0.025, count, 0.5))  # P(fewer than `rank` lie below the median) ≤ 2.5 %
    if rank == 0:
        warning = f"{count} rounds are too few for an interval"
        return Row(name=name, settings=settings, value=median, low=None, high=None, document=document, warning=warning)
    low, high = ordered[rank - 1], ordered[count - rank]
    return Row(name=name, settings=settings, value=median, low=low, high=high, document=document)


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The ratios."""
    named = {str(row.settings["method"]): as_dot(row) for row in rows if row.name == RATIO}
    return [Dots(title="Time of an update", x_label="in updates by maximum likelihood", rows=named)]


RECIPE = Experiment(
    title="Seconds per 100 iterations: base, scheduled sampling, E-ARM, Langevin dynamics",
    source="document 003, Table 11 (12 layers on a V100); at scale cpu the model of earm/table1, one thread",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(
        items=lambda row, cells: f"{cells[0]['rounds']} rounds of one run (sign test)",
        elsewhere=lambda cells: "12 layers, a V100",
    ),
)
