"""Tables B.1 and B.3, Figure B.6 and the ranking of digits (Figures B.4, B.5, B.7, B.9) of Dai 2019 (thesis)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.cegan.images import RANDOM, run_cell
from ebar.recipes.cegan.methods import CONST, GAN, NN, PAPER, VI, cell_of
from ebar.recipes.figures import alone, found
from ebar.recipes.layout import sheets
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe, Result, Row
from ebar.report.image_sheet import write_sheets

SHARED = "test images"
COMMON = {
    "data.kind": "images",
    "generator.kind": "dcgan",
    "discriminator.kind": "dcgan",
    "schedule.kind": "epoch_decay",
}
# The authors' settings (public code): NIST for digits; CIFAR-10 and, with other weights of the entropy, CelebA.
NIST: dict[str, Any] = {
    "generator.latent": 10, "neighbours.weight": 4.0, "neighbours.neighbours": 20, "neighbours.form": "unit",
    "energy.margin": 10.0, "gap.low": -1.2, "gap.high": 0.1, "gap.together": 1, "optimiser.learning_rate": 1e-4,
    "optimiser.betas": [0.0, 0.999], "training.generator_rate": 25.0, "training.batch_size": 200,
    "training.epochs": 20, "schedule.constant": 0, "schedule.decay": 0.8, "schedule.floor": 1e-3,
}  # fmt: skip
CIFAR: dict[str, Any] = {
    "generator.latent": 100, "discriminator.positive": True, "variational.weight": 0.1,
    "optimiser.learning_rate": 2e-5, "optimiser.betas": [0.5, 0.999], "optimiser.weight_decay": 1e-5,
    "training.generator_rate": 10.0, "training.clip": 500.0, "training.batch_size": 100, "training.epochs": 200,
    "schedule.constant": 100, "schedule.decay": 0.98,
}  # fmt: skip
SMOOTH = {**CIFAR, "smoothness": 0.01}  # scale paper alone
TOY = {
    "generator.features": 1, "discriminator.features": 1, "generator.latent": 3, "neighbours.neighbours": 5,
    "training.batch_size": 20, "training.epochs": 1,
}  # fmt: skip
SMALL = {
    "generator.features": 4, "discriminator.features": 8, "training.batch_size": 100, "training.checkpoint_every": 200,
}  # fmt: skip


def grid(
    methods: Sequence[str], cases: Mapping[str, tuple[Mapping[str, Any], Sequence[str], Mapping[str, Any], int]],
    digit: int | None = None,
) -> Grid:  # fmt: skip
    """Games on sets of images, or on one class of them, by scale: options, sets, what is measured, how many seeds."""

    def make(settings: dict[str, Any]) -> Cell:
        options, _, measures, _ = cases[settings["scale"]]
        method, labels = settings["method"], {"set": settings["set"], "digit": digit, "seed": settings["seed"]}
        found = cell_of({**COMMON, **options}, CONST if method == RANDOM else method, **labels)
        return {**found, "method": method, "measures": measures}

    return Grid(
        common={"scale": {scale: scale for scale in cases}},
        axes={"set": {scale: list(case[1]) for scale, case in cases.items()}, "method": list(methods)},
        seeds={scale: case[3] for scale, case in cases.items()},
        make=make,
    )


# Ranking one digit ------------------------------------------------------------------------------------------------

CORRELATION, OF_REAL = "rank correlation of energy and distance to the mean", "the same, of real images alone"
REAL = "share of real images among the {end}"
DISTANCE = "mean distance to the mean image, of the {end}"
ENDS = ("likeliest", "unlikeliest")


def _sheets(results: Sequence[Result]) -> list[Row]:
    """The sheets of the first seed."""
    rows = []
    for cell, result in results:
        if cell["seed"] == 0:
            shown = dict(result["ranking"]["sheets"])
            if cell["method"] != NN:
                del shown["mean"]  # of the training images: the same for all
            rows += [
                Row(name="sheet", settings={"method": cell["method"], "shows": what}, picture=sheet)
                for what, sheet in shown.items()
            ]
    return rows


def _ranked_picture(rows: Sequence[Row], path: Path) -> None:
    named = {
        "mean": "the mean of the training images",
        **{end: f"{{}}: the {end}, real ones in a frame" for end in ENDS},
    }
    shown = [row for row in rows if row.picture is not None]
    write_sheets(
        {named[row.settings["shows"]].format(row.settings["method"]): row.picture or "" for row in shown}, path
    )


DIGITS = Recipe(
    title="One digit ranked by energy: how the energy goes along with the distance to the mean digit",
    source=f"{PAPER}, Figures B.4, B.5, B.7 and B.9 (NIST, digit 1); at scale cpu MNIST",
    grid=grid(
        (NN, CONST, GAN),
        {
            "demo": ({**NIST, **TOY}, ["toy 28"], {"ranked": 10, "ends": 5}, 2),
            "cpu": ({**NIST, **SMALL}, ["mnist"], {"ranked": 500, "ends": 100}, 3),
            "paper": (NIST, ["nist"], {"ranked": 500, "ends": 100}, 10),
        },
        digit=1,
    ),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=CORRELATION, at="ranking.correlation.all", range=(-1.0, 1.0), shared=SHARED, warns="halted"),
            Figure(name=OF_REAL, at="ranking.correlation.real", range=(-1.0, 1.0), shared=SHARED, warns="halted"),
            Figure(name=REAL, at="ranking.real.{end}", each={"end": ENDS}, range=(0.0, 1.0)),
            Figure(name=DISTANCE, at="ranking.distance.{end}", each={"end": ENDS}),
            Figure(name=f"{CORRELATION}, less that of {CONST}", at="ranking.correlation.all", minus={"method": CONST}),
            Figure(name=f"{CORRELATION}, less that of {GAN}", at="ranking.correlation.all", minus={"method": GAN}),
            by=("method",),
        ),
        _sheets,
    ],
    tables=[
        Layout(rows=("method",), figures=(CORRELATION, OF_REAL)),
        Layout(rows=("method",), figures=tuple(name.format(end=end) for name in (REAL, DISTANCE) for end in ENDS)),
        Layout(rows=("method",), figures=(f"{CORRELATION}, less *",)),
    ],
    picture=_ranked_picture,
    claims=[
        Claim(says="the energy of EGAN-Ent-NN grows with the distance to the mean digit", figure=CORRELATION, above=0.0,
              where={"method": NN}),
        *(Claim(says=f"more than that of {other}", figure=f"{CORRELATION}, less that of {other}", above=0.0,
                where={"method": NN}) for other in (CONST, GAN)),
    ],
    notes=lambda rows: [
        "The thesis shows the rankings and gives no number: the correlation is ours. A high one says that images near "
        "the mean are found likely, which is what the thesis reads off its figures; it is no measure of the density."
    ],
)  # fmt: skip

# Table B.1 --------------------------------------------------------------------------------------------------------

SCORE, SCORE_OF_TEST = "classifier score of samples", "classifier score of test images"
ERROR = "the classifier's test error"
SCORE_OVER = f"{SCORE}, less that of {{other}}"
# By the Inception network; ± 0.10 and 0.09 over ten parts.
INCEPTION = {("cifar-10", VI): 7.07, ("cifar-10", CONST): 6.7447}

TABLE_B1 = Recipe(
    title="A classifier's score of samples, with and without an entropy",
    source=f"{PAPER}, Table B.1 (Inception scores on CIFAR-10); here a classifier trained on the data at hand",
    grid=grid(
        (VI, CONST, GAN),
        {
            "demo": ({**CIFAR, **TOY}, ["toy 32"],
                     {"score": {"samples": 20, "train": 40, "test": 20, "epochs": 1, "features": 1}}, 1),
            "cpu": ({**CIFAR, **SMALL, "training.epochs": 3, "optimiser.learning_rate": 2e-4, "schedule.constant": 3},
                    ["mnist"],
                    {"score": {"samples": 5000, "train": 10_000, "test": 5000, "epochs": 2, "features": 8}}, 3),
            "paper": (SMOOTH, ["cifar-10", "svhn"],
                      {"score": {"samples": 50_000, "train": 50_000, "test": 10_000, "epochs": 50, "features": 64}}, 5),
        },
    ),
    run=run_cell,
    figures=Figures(
        Figure(name=SCORE, at="score.samples", range=(1.0, 1000.0), warns="halted", paper=INCEPTION),
        Figure(name=SCORE_OF_TEST, at="score.test", range=(1.0, 1000.0), shared=SHARED),
        Figure(name=ERROR, at="score.error", range=(0.0, 1.0), shared=SHARED),
        *(Figure(name=SCORE_OVER.format(other=other), at="score.samples", where={"method": VI},
                 minus={"method": other}) for other in (CONST, GAN)),
        by=("set", "method"),
    ),
    tables=[
        Layout(rows=("set", "method"), figures=(SCORE, SCORE_OF_TEST, ERROR)),
        Layout(rows=("set", "method"), figures=(SCORE_OVER.format(other="*"),)),
    ],
    plots=Points(of=[SCORE], label="{method}", title="{set}", x_label=SCORE, panels=("set",)),
    claims=[
        Claim(says="samples of EGAN-Ent-VI score above 1", figure=SCORE, above=1.0, where={"method": VI}),
        *(Claim(says=f"they score higher than those of {other}", figure=SCORE_OVER.format(other=other), above=0.0)
          for other in (CONST, GAN)),
    ],
    notes=lambda rows: [
        "Scores by different classifiers do not compare: the thesis' 7.07 ± 0.10 (EGAN-Ent-VI), 6.86 ± 0.06 (improved "
        "GAN of Salimans et al. 2016, without labels) and 6.74 ± 0.09 (EGAN-Const) are by the Inception network."
    ],
    reading=Caption(items="images that are scored, one game", elsewhere=lambda cells: "Inception network"),
)  # fmt: skip

# Table B.3 --------------------------------------------------------------------------------------------------------

TEST_ERROR = "test error, %"
DEVIATION, LEAST = "standard deviation over runs, %", "least of the runs, %"
LESS = f"{TEST_ERROR}, less that of {{other}}"
PROBED = {
    ("mnist", NN): (1.190, 0.024, 1.160), ("mnist", CONST): (1.338, 0.044, 1.280),
    ("mnist", GAN): (1.259, 0.032, 1.220), ("mnist", RANDOM): (3.409, 0.124, 3.260),
}  # fmt: skip


PROBED_LESS = {other: round(PROBED["mnist", NN][0] - PROBED["mnist", other][0], 3) for other in (CONST, GAN, RANDOM)}


def _probed(place: int) -> dict[tuple[str, str], float]:
    """The document's means, deviations or least errors."""
    return {run: own[place] for run, own in PROBED.items()}


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))


TABLE_B3 = Recipe(
    title="Linear classifiers on fixed features of discriminators",
    source=f"{PAPER}, Table B.3 (MNIST)",
    grid=grid(
        (NN, CONST, GAN, RANDOM),
        {
            "demo": ({**NIST, **TOY}, ["toy 28"], {"probe": {"train": 40, "test": 20, "epochs": 1}}, 2),
            "cpu": ({**NIST, **SMALL, "training.epochs": 2}, ["mnist"],
                    {"probe": {"train": 10_000, "test": 10_000, "epochs": 5}}, 3),
            "paper": (NIST, ["mnist", "fashion-mnist"], {"probe": {"train": 60_000, "test": 10_000, "epochs": 50}}, 10),
        },
    ),
    run=run_cell,
    figures=Figures(
        *(Figure(name=name, at=lambda run: found(run, "probe").mapped(lambda error: 100 * error), summary=summary,
                 range=(0.0, 100.0), shared=SHARED, warns="halted", paper=_probed(place))
          for place, (name, summary) in enumerate(
              ((TEST_ERROR, None), (DEVIATION, alone(_deviation)), (LEAST, alone(min))))),
        *(Figure(name=LESS.format(other=other), at=lambda run: 100 * found(run, "probe").value, where={"method": NN},
                 minus={"method": other}, paper={("mnist", NN): theirs})
          for other, theirs in PROBED_LESS.items()),
        by=("set", "method"),
    ),
    tables=[
        Layout(rows=("set", "method"), figures=(TEST_ERROR, DEVIATION, LEAST)),
        Layout(rows=("set", "method"), figures=(LESS.format(other="*"),)),
    ],
    plots=Points(of=[TEST_ERROR], label="{method}", title="{set}", x_label=TEST_ERROR, panels=("set",)),
    claims=[
        Claim(says=f"features of {NN} err less than those of {other}", figure=LESS.format(other=other), below=0.0)
        for other in PROBED_LESS
    ],
    reading=Caption(
        departures=lambda cells: [
            "Test items do not choose the epoch: the last is measured. The thesis does not say when its classifiers "
            "stopped."
        ]
    ),
)  # fmt: skip

# Figure B.6 -------------------------------------------------------------------------------------------------------


FIGURE_B6 = Recipe(
    title="Images drawn from generators that were trained with an entropy",
    source=f"{PAPER}, Figure B.6 (CIFAR-10 and CelebA); at scale cpu MNIST",
    grid=grid(
        (VI,),
        {
            "demo": ({**CIFAR, **TOY}, ["toy 32", "toy 64"], {"sheet": 10}, 1),
            "cpu": ({**CIFAR, **SMALL, "training.epochs": 3, "optimiser.learning_rate": 2e-4, "schedule.constant": 3},
                    ["mnist"], {"sheet": 100}, 1),
            "paper": (SMOOTH, ["cifar-10", "celeba"], {"sheet": 100}, 1),
        },
    ),
    run=run_cell,
    figures=lambda results: [
        Row(name="steps", settings={"set": cell["set"], "method": cell["method"]}, value=float(result["steps"]),
            picture=result["sheet"])
        for cell, result in results
    ],
    picture=sheets("{set}"),
    notes=lambda rows: [
        "The authors let the weight of the entropy fall from 0.5 to 0.1 on CelebA (×0.9 an epoch); here it is 0.1 "
        "throughout."
    ],
    reading=Caption(
        departures=lambda cells: [
            "In place of CIFAR-10 and CelebA stand the digits of MNIST, 32 × 32, by small networks after three epochs: "
            "what can be seen is whether strokes are digits and whether they differ, not how photographs would look."
        ] if cells[0]["set"] == "mnist" else []
    ),
)  # fmt: skip
