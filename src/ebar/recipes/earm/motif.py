"""A common ground: the motif language of Parshakova et al. 2019, whose entropy is known, for E-ARM and its rivals.

Four models of the same data and seed: r by maximum likelihood, which is `gam/data_efficiency`'s tuned one; r with
scheduled sampling and with E-ARM from half way on, which share its first epochs; and GAM's π, from r's weights.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.build.gam import base_settings, make_gam
from ebar.build.train import build_corpus, train_branches
from ebar.config.reader import Chosen
from ebar.config.train import TrainConfig
from ebar.data.corpus import Corpus
from ebar.evaluation.exact_cross_entropy import exact_cross_entropy
from ebar.evaluation.moments import frequencies, mean_length
from ebar.features.feature import Features
from ebar.journeys.gam.figures import DRAWS, motif_of
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive
from ebar.recipes.figures import found
from ebar.recipes.gam.cells import configured, gam_grid
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Points, Recipe, Result, layouts

R, SCHEDULED, EARM, STUDENT = "r", "r + scheduled sampling", "r + E-ARM", "π (GAM)"
FOLDERS = {R: "gam/r", SCHEDULED: "scheduled_sampling", EARM: "earm"}  # r's is where the journey of GAM looks for it
# |D| and how many seeds.
SIZES = {"demo": {60: 2}, "cpu": {500: 3}, "paper": {5000: 5, 500: 5, 100: 5, 50: 5}}
FAKES = 32  # in a batch, at least: batches of D are small, and weights relative to few fakes are biased
COST = "exact cross-entropy, nats per token"
COST_DIFFERENCE = "exact cross-entropy − that of r, paired"
MOTIF_DIFFERENCE = "motif frequency − that of r, paired"


def cells(scale: str) -> list[Cell]:
    """Data, and settings of r and π, as in `gam/data_efficiency`."""
    sizes = [{"size": size, "seed": seed} for size, seeds in SIZES[scale].items() for seed in range(seeds)]
    return [_with_twins(cell) for cell in gam_grid({"size": sizes}, recipe="tuned", exact=True)(scale)]


def _with_twins(cell: Cell) -> Cell:
    base = cell["configuration"]["base"]
    start = {"start_epoch": base["epochs"] // 2}
    return {
        **cell,
        "twins": {
            # The chance of the true token falls as if it had from the first step on.
            SCHEDULED: {"kind": "scheduled_sampling", "slope": None, "floor": 0.8, **start},
            EARM: {"kind": "earm", "weight": 0.05, "recent": 2, "draws": -(-FAKES // base["batch_size"]), **start},
        },
    }


def twins_of(cell: Cell, run: TrainConfig) -> dict[str, TrainConfig]:
    """r as a run of `ebar train`, and those with another objective."""
    objectives = {name: dict(options) for name, options in cell["twins"].items()}
    return {R: run} | {
        name: replace(run, objective=Chosen(kind=options.pop("kind"), options=options))
        for name, options in objectives.items()
    }


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All four models, each measured over all strings of the language."""
    gam = configured(cell["configuration"])
    run = base_settings(gam)
    corpus = build_corpus(run)
    start = cell["twins"][EARM]["start_epoch"]
    runs = {FOLDERS[name]: one for name, one in twins_of(cell, run).items()}
    trained = train_branches(runs, folder, epochs=start, data=corpus)
    twins = {name: trained[place] for name, place in FOLDERS.items()}
    journey, figures = make_gam(gam, folder / "gam", page=False)
    models = {name: twin.model for name, twin in twins.items()} | {STUDENT: journey.pi}
    curves = {name: twin.history.curve("validation.loss") for name, twin in twins.items()}
    said = {STUDENT: [*journey.rounds[-1].fitted.warnings, *journey.rounds[-1].distilled.warnings]}
    for name in (SCHEDULED, EARM):
        costs = [cost for _, cost in curves[name]]
        if costs.index(min(costs)) < start:
            said[name] = ["its best held-out loss is from before its start epoch: these are r's weights of then"]
    return {
        "entropy": figures.entropy,
        "models": {name: motif_figures(model, corpus, cell["seed"]) for name, model in models.items()},
        "warnings": said,
        "effective_share": [value for _, value in twins[EARM].history.curve("effective_share")],
        "validation": curves,
    }


def motif_figures(model: Autoregressive, corpus: Corpus, seed: int) -> dict[str, Any]:
    """Its exact cost, and what its strings are like; the same random numbers for all models."""
    motif = motif_of(corpus)
    assert motif is not None
    assert corpus.language is not None
    drawn = model.sample(DRAWS, generator=Generator().manual_seed(folded(seed, 4)))
    return {
        "exact": exact_cross_entropy(corpus.language.distribution(), model).per_token,
        "motif_frequency": frequencies(drawn, Features([motif]))[motif.name],
        "mean_length": mean_length(drawn),
    }


def _each_model(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    for name, own in result["models"].items():
        # The first warning, and how many more there are: λ of features constant in D says a lot.
        said = result["warnings"].get(name)
        more = f" (and {len(said) - 1} more)" if said and len(said) > 1 else ""
        yield {**cell, "model": name}, {**result, **own, "warning": f"{said[0]}{more}" if said else None}


RECIPE = Recipe(
    title="The motif language, its entropy known: r, r with scheduled sampling, r with E-ARM, and GAM's π",
    source="the data of Parshakova et al. 2019 (motif 10001011111000, ft 1001111) for the methods of Wang et al. 2022: "
    "ebar's own",
    grid=cells,
    run=run_cell,
    figures=[
        Figures(Figure(name="entropy of the language", at="entropy", exact=True), by=("size",)),
        Figures(
            Figure(name=COST, at="exact", least="entropy", warns="warning"),
            Figure(
                name="CE/H", at=lambda model: found(model, "exact").mapped(lambda cost: cost / model["entropy"]),
                range=(1.0, math.inf),
            ),
            Figure(name="motif frequency", at="motif_frequency", range=(0.0, 1.0)),
            Figure(name="mean length", at="mean_length"),
            Figure(name=COST_DIFFERENCE, at="exact", minus={"model": R}),
            Figure(name=MOTIF_DIFFERENCE, at="motif_frequency", minus={"model": R}, range=(-1.0, 1.0)),
            Figure(
                name="effective share of the fakes",
                at=lambda model: math.fsum(model["effective_share"]) / len(model["effective_share"]),
                where={"model": EARM}, range=(0.0, 1.0),
            ),
            by=("size", "model"), parts=_each_model,
        ),
    ],
    tables=[
        *layouts(("size",), ("entropy of the language",), names={"size": "|D|"}),
        *layouts(("size", "model"), (COST, "CE/H", "motif frequency", "mean length", "effective*"),
                 (COST_DIFFERENCE, MOTIF_DIFFERENCE), names={"size": "|D|"}),
    ],
    plots=[
        Points(of=[figure], label="|D| = {size}: {model}", title=title, x_label=label)
        for figure, title, label in (
            (COST_DIFFERENCE, "Exact cross-entropy − r's, paired", "nats per token"),
            (MOTIF_DIFFERENCE, "Motif frequency − r's, paired", "motif frequency"),
        )
    ],
    claims=[
        Claim(says="E-ARM lowers the cross-entropy", figure=COST_DIFFERENCE, below=0.0, where={"model": EARM}),
        Claim(says="π of a GAM lowers it", figure=COST_DIFFERENCE, below=0.0, where={"model": STUDENT}),
    ],
    reading=Caption(
        items=f"{DRAWS:,} draws, one training",
        shared="A seed decides the data, the first weights and the draws: an interval over seeds holds the errors of "
        "all three. Cross-entropies are exact, over all strings of the language.",
    ),
)  # fmt: skip
