"""A common ground: the motif language of document 000, whose entropy is known, for E-ARM and its rivals.

Four models of the same data and seed: r by maximum likelihood, which is `gam/data_efficiency`'s tuned one; r with
scheduled sampling and with E-ARM from half way on, which share its history up to there; and GAM's π, from r's weights.
"""

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.automata import entropy, measures
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.gam import base_settings, make_gam
from ebar.build.model import build_model
from ebar.config.reader import to_yaml
from ebar.config.train import TrainConfig
from ebar.data.corpus import Corpus
from ebar.evaluation.exact_cross_entropy import exact_cross_entropy
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.journeys.forked import Branch, Fork, train_forked
from ebar.journeys.gam.figures import DRAWS
from ebar.journeys.train import held_out_batches, training_batches
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.objectives.scheduled_sampling import ScheduledSampling
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.gam.cells import configured
from ebar.recipes.gam.settings import gam_grid
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_estimate, grouped, over_seeds
from ebar.report.plots import Dots
from ebar.store.writing import TEMPORARY, replace
from ebar.training.optimisers import OPTIMISERS
from ebar.training.schedules import SCHEDULES, for_steps
from ebar.types import Estimate, Objective

R, SCHEDULED, EARM, STUDENT = "r", "r + scheduled sampling", "r + E-ARM", "π (GAM)"
RIVALS = (SCHEDULED, EARM, STUDENT)
FOLDERS = {R: "r", SCHEDULED: "scheduled_sampling", EARM: "earm"}
SIZES = {
    "demo": {60: 2},
    "cpu": {500: 3},
    "paper": {5000: 5, 500: 5, 100: 5, 50: 5},
}
FAKES = 32  # in a batch, at least: batches of D are small, and weights relative to few fakes are biased
COST = "exact cross-entropy, nats per token"
COST_DIFFERENCE = "exact cross-entropy − that of r, paired"
MOTIF_DIFFERENCE = "motif frequency − that of r, paired"


def cells(scale: str) -> list[Cell]:
    """Data, and settings of r and π, as in `gam/data_efficiency`."""
    return [_cell(scale, size, seed) for size, seeds in SIZES[scale].items() for seed in range(seeds)]


def _cell(scale: str, size: int, seed: int) -> Cell:
    [cell] = gam_grid({"size": [size], "seed": [seed]}, recipe="tuned", exact=True)(scale)
    base = cell["configuration"]["base"]
    draws = -(-FAKES // base["batch_size"])
    return {
        **cell,
        "start_epoch": base["epochs"] // 2,
        "least_truth": 0.8,
        "earm": {"weight": 0.05, "recent": 2, "draws": draws},
    }


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All four models, each measured over all strings of the language."""
    gam = configured(cell["configuration"])
    run = base_settings(gam)
    corpus = build_corpus(run)
    assert corpus.language is not None
    truth = corpus.language.distribution()
    branches = train_branches(cell, run, corpus, folder)
    place = folder / "gam"
    _hand_over(folder / FOLDERS[R], place / "r", run)
    journey = make_gam(gam, place).gam
    models = {name: branch.module for name, branch in branches.items()} | {STUDENT: journey.pi}
    said = {STUDENT: [*journey.rounds[-1].fitted.warnings, *journey.rounds[-1].distilled.warnings]}
    forked = cell["start_epoch"] * len(training_batches(corpus, run.training, run.seed, run.device))
    for name in (SCHEDULED, EARM):
        if _best_step(branches[name]) <= forked:
            said[name] = ["its best held-out loss is from before the fork: these are r's weights of then"]
    return {
        "entropy": entropy(truth) / measures.mean_length(truth),
        "models": {name: _measured(model, corpus, truth, cell["seed"]) for name, model in models.items()},
        "warnings": said,
        "effective_share": [value for _, value in branches[EARM].curve("effective_share")],
        "validation": {name: branch.curve("validation.loss") for name, branch in branches.items()},
    }


def train_branches(cell: Cell, run: TrainConfig, corpus: Corpus, folder: Path) -> dict[str, Branch]:
    """r and its two twins, each to its last epoch."""
    batches = training_batches(corpus, run.training, run.seed, run.device)
    fork = Fork(
        epochs=run.training.epochs,
        at=cell["start_epoch"],
        seed=run.seed,
        optimiser=make(OPTIMISERS, run.optimiser, "optimiser"),
        schedule=for_steps(make(SCHEDULES, run.schedule, "schedule"), run.training.epochs * len(batches)),
        clip=run.training.clip,
    )
    ways = objectives(cell, run.training.epochs * len(batches))
    trained = train_forked(
        folder,
        fork,
        lambda: build_model(run, corpus.space),
        ways[R],
        {FOLDERS[name]: way for name, way in ways.items()},
        batches,
        lambda model: (MaximumLikelihood(model=model), held_out_batches(corpus, run.training, run.device)),
    )
    return {name: trained[FOLDERS[name]] for name in ways}


def objectives(cell: Cell, steps: int) -> dict[str, Callable[[Autoregressive], Objective]]:
    """What each branch does after the fork; the chance of the true token falls as if it had from the first step on."""
    least = cell["least_truth"]
    return {
        R: lambda model: MaximumLikelihood(model=model),
        SCHEDULED: lambda model: ScheduledSampling(model=model, slope=(1 - least) / steps, floor=least),
        EARM: lambda model: Earm(model=model, **cell["earm"]),
    }


def _hand_over(branch: Path, place: Path, run: TrainConfig) -> None:
    """The branch as the run of `ebar train` that it is to the last bit: the journey finds it finished and goes on."""
    if place.exists():
        return
    half = place.with_name(TEMPORARY + place.name)
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(branch, half)
    replace(half / "config.yaml", to_yaml(run).encode())
    os.replace(half, place)


def _best_step(branch: Branch) -> int:
    return min(branch.curve("validation.loss"), key=lambda point: point[1])[0]


def _measured(model: Autoregressive, corpus: Corpus, truth: ProbabilisticAutomaton, seed: int) -> dict[str, Any]:
    assert corpus.language is not None
    assert corpus.language.motif is not None
    motif = Motif(corpus.language.motif).bind(corpus.reading)
    # The same random numbers for all models.
    drawn = model.sample(DRAWS, generator=Generator().manual_seed(folded(seed, 4)))
    return {
        "exact": exact_cross_entropy(truth, model).per_token._asdict(),
        "motif_frequency": frequencies(drawn, Features([motif]))[motif.name]._asdict(),
        "mean_length": mean_length(drawn)._asdict(),
    }


def figures(results: Sequence[Result]) -> list[Row]:
    """Each model's cost and motif frequency, and how they differ from r's of the same seed."""
    rows = []
    for (size,), runs in grouped(results, ("size",)).items():
        found = [result for _, result in runs]
        h = found[0]["entropy"]
        rows.append(Row(name="entropy of the language", settings={"size": size}, value=h, low=h, high=h))
        for name in (R, *RIVALS):
            rows += _rows_of(name, {"size": size, "model": name}, found)
        shares = [math.fsum(one["effective_share"]) / len(one["effective_share"]) for one in found]
        rows.append(over_seeds("effective share of the fakes", {"size": size, "model": EARM}, shares, least=0.0))
    return rows


def _rows_of(name: str, settings: Mapping[str, Any], found: Sequence[dict[str, Any]]) -> list[Row]:
    costs, frequency = _values(found, name, "exact"), _values(found, name, "motif_frequency")
    h = found[0]["entropy"]
    single = {key: as_estimate(found[0]["models"][name][key]) for key in ("exact", "motif_frequency", "mean_length")}
    rows = [
        over_seeds(COST, settings, costs, single=single["exact"], least=h, warning=_warning(name, found)),
        over_seeds("CE/H", settings, [cost / h for cost in costs], single=_over(single["exact"], h), least=1.0),
        over_seeds("motif frequency", settings, frequency, single=single["motif_frequency"], least=0.0),
        over_seeds("mean length", settings, _values(found, name, "mean_length"), single=single["mean_length"]),
    ]
    if name != R:
        for figure, key, own in ((COST_DIFFERENCE, "exact", costs), (MOTIF_DIFFERENCE, "motif_frequency", frequency)):
            base = _values(found, R, key)
            rows.append(over_seeds(figure, settings, [twin - r for twin, r in zip(own, base, strict=True)]))
    return rows


def _values(found: Sequence[dict[str, Any]], name: str, key: str) -> list[float]:
    return [float(one["models"][name][key]["value"]) for one in found]


def _over(value: Estimate | None, divisor: float) -> Estimate | None:
    if value is None:
        return None
    return value._replace(value=value.value / divisor, low=value.low / divisor, high=value.high / divisor)


def _warning(name: str, found: Sequence[dict[str, Any]]) -> str | None:
    """The first thing that its runs said, and how much more there is: λ of features constant in D say a lot."""
    warned = [said for one in found if (said := one["warnings"].get(name))]
    if not warned:
        return None
    more = f" (and {len(warned[0]) - 1} more)" if len(warned[0]) > 1 else ""
    return f"{len(warned)} of {len(found)} runs: {warned[0][0]}{more}"


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    titles = {COST_DIFFERENCE: "Exact cross-entropy − r's, paired", MOTIF_DIFFERENCE: "Motif frequency − r's, paired"}
    labels = {COST_DIFFERENCE: "nats per token", MOTIF_DIFFERENCE: "motif frequency"}
    return [
        Dots(
            title=title,
            x_label=labels[figure],
            rows={
                f"|D| = {row.settings['size']}: {row.settings['model']}": _estimate(row)
                for row in rows
                if row.name == figure
            },
        )
        for figure, title in titles.items()
    ]


def _estimate(row: Row) -> Estimate:
    value = float("nan") if row.value is None else row.value
    low, high = (value if end is None else end for end in (row.low, row.high))
    return Estimate(value, low, high, float("nan"))


RECIPE = Experiment(
    title="The motif language, its entropy known: r, r with scheduled sampling, r with E-ARM, and GAM's π",
    source="document 000's data (motif 10001011111000, ft 1001111) for document 003's methods: ebar's own",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(
        items=f"{DRAWS:,} draws, one training",
        ranges={
            "motif frequency": (0.0, 1.0),
            MOTIF_DIFFERENCE: (-1.0, 1.0),
            "CE/H": (1.0, math.inf),
            "effective share of the fakes": (0.0, 1.0),
        },
        shared="A seed decides the data, the first weights and the draws: an interval over seeds holds the errors of "
        "all three. Cross-entropies are exact, over all strings of the language.",
    ),
)
