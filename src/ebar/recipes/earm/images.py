"""PixelCNN and Gated PixelCNN with and without E-ARM: Table 5 and Figure 1 of Wang et al. 2022."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Generator

from ebar.data.images import Images
from ebar.evaluation.cross_entropy import bits_difference, bits_per_dimension
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive
from ebar.recipes.earm import twins
from ebar.recipes.earm.twins import BASE, EARM, LEFT, PAPER
from ebar.recipes.figures import alone, row_of
from ebar.recipes.layout import sheets
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Points, Recipe, Result, Row, layouts
from ebar.report.image_sheet import Shape, completion_sheet, sample_sheet
from ebar.types import Context, Estimate, Sequences

NETWORKS = {"pixelcnn": "PixelCNN", "gated_pixelcnn": "Gated PixelCNN"}
COMMON = {
    "data.kind": "images", "data.binary": True, "earm.contexts": "real", "schedule.kind": "cosine",
    "training.drop_last": True, "training.held_out_batch": 200, "training.checkpoint_every": 500,
}  # fmt: skip
MNIST = {
    "corpus": "mnist", "data.train": "mnist/train-images-idx3-ubyte.gz", "data.test": "mnist/t10k-images-idx3-ubyte.gz",
}  # fmt: skip
CIFAR = {
    "corpus": "cifar-10", "data.train": "cifar-10/train.npz", "data.test": "cifar-10/test.npz", "data.binary": False,
    "data.limit": 45_000, "data.validation_size": 5000,
}  # fmt: skip
SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "corpus": "toy", "data.train": "toy/train.npz", "data.test": "toy/test.npz", "data.limit": 60,
        "data.validation_size": 20, "backbone.features": 4, "backbone.layers": 1, "optimiser.learning_rate": 1e-2,
        "schedule.warmup": 2, "training.epochs": 2, "training.batch_size": 10, "earm.start_epoch": 1,
        "earm.window": 10, "measures.samples": 10, "measures.images": 20,
    },
    "cpu": {
        **MNIST, "data.limit": 20_000, "data.validation_size": 1000, "backbone.features": 16, "backbone.layers": 5,
        "optimiser.learning_rate": 4e-3, "schedule.warmup": 50, "training.epochs": 6, "training.batch_size": 32,
        "earm.start_epoch": 2, "earm.window": 50, "measures.samples": 50, "measures.images": 10_000,
    },
    # The paper says that networks are those of their own papers, λ and the start epoch of the others, and no more.
    "paper": {
        "backbone.features": 128, "backbone.layers": 15, "optimiser.learning_rate": 1e-3, "schedule.warmup": 500,
        "training.epochs": 200, "training.batch_size": 128, "earm.start_epoch": 15, "earm.window": 50,
        "measures.samples": 100, "measures.images": 10_000,
    },
}  # fmt: skip
# Many small steps take the gated network further than few large ones; the fakes are as many as in a large one.
SMALL_STEPS = {
    "data.limit": 20_000, "backbone.features": 20, "backbone.layers": 6, "schedule.warmup": 200, "training.epochs": 3,
    "training.batch_size": 8, "earm.start_epoch": 1, "earm.draws": 4,
}  # fmt: skip
PLAIN, GATED = ({"backbone": name, "backbone.kind": name} for name in NETWORKS)
BACKBONES = {"demo": [PLAIN, GATED], "cpu": [PLAIN, {**GATED, **SMALL_STEPS}], "paper": [PLAIN, GATED]}
SEEN = 2000  # training images that are measured, at most


# Table 5 has both sets of images, Figure 1 the second alone.
IMAGES = [{**MNIST, "data.limit": 55_000, "data.validation_size": 5000}, CIFAR]


def images_grid(seeds: Any, paper: Sequence[Mapping[str, Any]]) -> Grid:
    """Both networks over these seeds, at scale paper on these images."""
    images = {"demo": [{}], "cpu": [{}], "paper": paper}
    return twins.twin_grid(COMMON, {"seed": seeds, "images": images, "backbone": BACKBONES}, scales=SCALES)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Both twins, trained, measured and drawn from."""
    corpus, trained = twins.train_twins(cell, folder)
    train, test = corpus.parts["train"], corpus.parts["test"]
    assert isinstance(train, Images)
    assert isinstance(test, Images)
    seen = train.select(slice(0, min(len(test), SEEN))).sequences()  # as many as are tested, at most
    return {
        "difference": bits_difference(trained[EARM].model, trained[BASE].model, corpus.test),
        "twins": {
            name: {
                "test": bits_per_dimension(twin.model, corpus.test),
                "train": bits_per_dimension(twin.model, seen),
                **drawn_sheets(twin.model, test, cell["measures"]["samples"], cell["seed"]),
                "curves": twins.curves(twin),
            }
            for name, twin in trained.items()
        },
    }


def drawn_sheets(model: Autoregressive, images: Images, count: int, seed: int, each: int = 4) -> dict[str, str]:
    """Images drawn from the model, and completions: the upper half given, the lower half drawn."""
    shape = Shape(height=images.height, width=images.width, channels=images.channels, levels=images.levels)
    drawn = model.sample(count, generator=Generator().manual_seed(folded(seed, 2)))
    originals = images.select(slice(0, count // 5)).sequences()
    given = images.space.length // 2
    half = Sequences(originals.tokens[:, :given], torch.full_like(originals.lengths, given))
    rest = model.sample(each, Context(half), generator=Generator().manual_seed(folded(seed, 3)))
    whole = torch.cat([half.tokens.repeat_interleave(each, 0), rest.tokens], 1)
    completed = Sequences(whole, torch.full((len(whole),), images.space.length))
    found = {"samples": sample_sheet(drawn, shape), "completions": completion_sheet(originals, completed, given, shape)}
    return {what: base64.b64encode(sheet).decode() for what, sheet in found.items()}


# Table 5 ----------------------------------------------------------------------------------------------------------

# Data and model → test and training figures.
TABLE5_PAPER = {
    ("mnist", "PixelCNN"): (0.17, 0.13), ("mnist", "PixelCNN with E-ARM"): (0.15, 0.12),
    ("mnist", "Gated PixelCNN"): (0.14, 0.11), ("mnist", "Gated PixelCNN with E-ARM"): (0.12, 0.10),
    ("cifar-10", "PixelCNN"): (3.14, 3.08), ("cifar-10", "PixelCNN with E-ARM"): (3.07, 2.98),
    ("cifar-10", "Gated PixelCNN"): (3.03, 2.90), ("cifar-10", "Gated PixelCNN with E-ARM"): (2.97, 2.91),
}  # fmt: skip
GAIN_PAPER = {
    (corpus, model): round(TABLE5_PAPER[corpus, f"{model} with E-ARM"][0] - TABLE5_PAPER[corpus, model][0], 2)
    for corpus in ("mnist", "cifar-10") for model in NETWORKS.values()
}  # fmt: skip
BITS, TRAINING = "test bits per dimension", "training bits per dimension"
GAIN = f"{BITS}, E-ARM − without, paired"


def _named(cell: Cell, twin: str) -> Mapping[str, Any]:
    return {"model": NETWORKS[cell["backbone"]] + (" with E-ARM" if twin == EARM else "")}


def images_read(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    count = cells[0]["measures"]["images"]
    return f"{min(SEEN, count) if row.name == TRAINING else count:,} images, one training"


def _departures(cells: Sequence[Cell]) -> list[str]:
    """How images became binary decides the figure, and the paper does not say how its own did."""
    said = [
        "Our images of MNIST are binary, by one Bernoulli draw for each pixel. The paper does not say how its own "
        "were made so, if they were: its figures are of the same images, but perhaps not of the same quantity.",
    ]
    return said if any(cell["corpus"] == "mnist" for cell in cells) else []


def _each_network(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    ends = result["twins"][BASE]["curves"]["validation"]
    left = twins.share_of_learning(cell, cell["twins"][EARM]["start_epoch"], ends)
    yield {**cell, **_named(cell, BASE)}, {**result, "left": left}


TABLE5 = Recipe(
    title="PixelCNN and Gated PixelCNN with and without E-ARM",
    source=f"{PAPER}, Table 5; at scale cpu MNIST, one Bernoulli draw per pixel (seed 0)",
    grid=images_grid({"demo": [0], "cpu": [0, 1, 2], "paper": [0, 1, 2]}, IMAGES),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=BITS, at="test", shared="images"),
            Figure(name=TRAINING, at="train", shared="images"),
            by=("corpus", "model"), parts=twins.each_twin(_named), paper=TABLE5_PAPER,
        ),
        Figures(
            Figure(name=GAIN, at="difference", shared="images", paper=GAIN_PAPER),
            Figure(name=LEFT, at="left", summary=alone(fmean)),
            by=("corpus", "model"), parts=_each_network,
        ),
    ],
    tables=layouts(("corpus", "model"), (BITS, TRAINING), (GAIN, LEFT)),
    plots=Points(of=[GAIN], label="{corpus}, {model}", title="Paired over seeds", x_label="bits per dimension"),
    claims=Claim(says="E-ARM needs fewer bits", figure=GAIN, below=0.0),
    runs="earm/images",
    reading=Caption(items=images_read, departures=_departures),
)  # fmt: skip

# Figure 1 ---------------------------------------------------------------------------------------------------------


def _sheets(results: Sequence[Result]) -> list[Row]:
    """What each sheet shows, beside the test figure of its model."""
    return [
        row_of(BITS, {**_named(cell, name), "sheet": what}, Estimate.from_dict(twin["test"]), picture=twin[what])
        for cell, result in results
        for name, twin in result["twins"].items()
        for what in ("samples", "completions")
    ]


FIGURE1 = Recipe(
    title="Images drawn from PixelCNN and Gated PixelCNN, with and without E-ARM",
    source=f"{PAPER}, Figure 1 (CIFAR-10); at scale cpu MNIST, one Bernoulli draw per pixel (seed 0)",
    # The first seed is enough to be looked at.
    grid=images_grid([0], [CIFAR]),
    run=run_cell,
    figures=_sheets,
    picture=sheets("{model}: {sheet}"),
    runs="earm/images",
    reading=Caption(
        items=images_read,
        departures=lambda cells: (
            ["The paper's picture is of a Gated PixelCNN with E-ARM on CIFAR-10: no sheet here compares with it."]
            if cells[0]["corpus"] != "cifar-10"
            else []
        ),
    ),
)
