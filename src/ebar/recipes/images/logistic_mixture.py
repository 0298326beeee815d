"""A mixture of logistics beside a softmax, over 256 levels of grey, on the same network."""

import math
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ebar.build.train import build_corpus, train_as
from ebar.data.images import Images
from ebar.evaluation.cross_entropy import bits_per_dimension, negative_log_scores
from ebar.evaluation.means import plain_mean
from ebar.recipes.earm.images import BITS, SEEN, TRAINING, images_read
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe
from ebar.recipes.training import configuration, training_grid
from ebar.types import Estimate

LOGISTIC, SOFTMAX = "mixture of logistics", "softmax"
HEADS = {SOFTMAX: {"kind": "softmax"}, LOGISTIC: {"kind": "logistic_mixture", "components": 10}}
MNIST = {"data.train": "mnist/train-images-idx3-ubyte.gz", "data.test": "mnist/t10k-images-idx3-ubyte.gz"}
COMMON = {
    "data.kind": "images", "backbone.kind": "gated_pixelcnn", "heads": HEADS, "schedule.kind": "cosine",
    "training.clip": 1.0, "training.patience": 1000, "training.drop_last": True, "training.held_out_batch": 200,
    "training.checkpoint_every": 500,
}  # fmt: skip
SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "data.train": "toy/train.npz", "data.test": "toy/test.npz", "data.limit": 60, "data.validation_size": 20,
        "backbone.features": 4, "backbone.layers": 1, "optimiser.learning_rate": 1e-2, "schedule.warmup": 2,
        "training.epochs": 2, "training.batch_size": 10, "measures.images": 20,
    },
    "cpu": {
        **MNIST, "data.limit": 16_000, "data.validation_size": 1000, "backbone.features": 16, "backbone.layers": 4,
        "optimiser.learning_rate": 8e-3, "schedule.warmup": 50, "training.epochs": 1, "training.batch_size": 16,
        "measures.images": 10_000,
    },
    # Width, components and rate are those with which Dai et al. 2017b trained PixelCNN++ on MNIST: 160 features, three
    # residual blocks at each of two resolutions, on the way down and on the way up.
    "paper": {
        **MNIST, "data.limit": 59_000, "data.validation_size": 1000, "backbone.features": 160, "backbone.layers": 13,
        "optimiser.learning_rate": 2e-4, "schedule.warmup": 500, "training.epochs": 100, "training.batch_size": 64,
        "measures.images": 10_000,
    },
}  # fmt: skip
PARAMETERS = "parameters of the head"
DIFFERENCE = f"{BITS}, {LOGISTIC} − {SOFTMAX}, paired"


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Both heads, on networks that begin alike and see the same images in the same order."""
    runs = {name: configuration(cell["configuration"], folder, head=head) for name, head in cell["heads"].items()}
    corpus = build_corpus(runs[SOFTMAX])
    models = {name: train_as(run, folder / run.head.kind, data=corpus).model for name, run in runs.items()}
    train = corpus.parts["train"]
    assert isinstance(train, Images)
    seen = train.select(slice(0, SEEN)).sequences()
    costs = {name: negative_log_scores(model, corpus.test) for name, model in models.items()}
    return {
        "difference": _bits(costs[LOGISTIC] - costs[SOFTMAX], corpus.space.length),
        "heads": {
            name: {
                "test": _bits(costs[name], corpus.space.length),
                "train": bits_per_dimension(model, seen),
                "parameters": sum(own.numel() for key, own in model.named_parameters() if key.startswith("head.")),
            }
            for name, model in models.items()
        },
    }


def _bits(costs: Float[Tensor, " images"], dimensions: int) -> Estimate:
    """The mean per dimension, in bits; the interval is over images."""
    return plain_mean(costs / (dimensions * math.log(2)))


RECIPE = Recipe(
    title="A mixture of logistics beside a softmax over 256 levels of grey",
    source="ebar's own; the head is that of Salimans et al. 2017 (arXiv:1701.05517); at scales cpu and paper MNIST",
    grid=training_grid(COMMON, {"seed": {"demo": [0], "cpu": [0, 1, 2], "paper": [0, 1, 2]}}, scales=SCALES),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=BITS, at="test", shared="test images"),
            Figure(name=TRAINING, at="train"),  # each seed has training images of its own
            Figure(name=PARAMETERS, at="parameters", exact=True),
            by=("head",),
            parts=lambda cell, result: [({**cell, "head": name}, own) for name, own in result["heads"].items()],
        ),
        Figures(Figure(name=DIFFERENCE, at="difference", shared="test images"), by=()),
    ],
    tables=[Layout(rows=("head",), figures=(BITS, TRAINING, PARAMETERS)), Layout(rows=(), figures=(DIFFERENCE,))],
    plots=Points(of=[BITS, TRAINING], label="{head}: {figure}", title="Images", x_label="bits per dimension"),
    claims=Claim(says="the mixture of logistics needs fewer bits", figure=DIFFERENCE, below=0.0),
    reading=Caption(
        items=images_read,
        departures=lambda cells: [
            "PixelCNN++ has residual blocks at two resolutions and more, short cuts between them, and dropout on small "
            "images; the network here is a Gated PixelCNN of one resolution. Only the heads are compared.",
            "The paper's own comparison with a softmax is a curve on CIFAR-10; it has no figure of MNIST.",
        ],
    ),
)
