"""Runs of `ebar classify` with few labels: the methods of Tables C.1 and C.2, and what is measured of each."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from ebar.build.game import classify_as
from ebar.build.train import load_trained
from ebar.config.classify import MANUAL, ClassifyConfig
from ebar.config.reader import read_tree
from ebar.data.labelled_images import FewLabels
from ebar.evaluation.few_labels import log_densities
from ebar.evaluation.means import plain_share
from ebar.journeys.classify.journey import Classified
from ebar.maths.randomness import folded
from ebar.models.raster_density import RasterDensity
from ebar.recipes.grid import Grid, file_of
from ebar.recipes.recipe import Cell
from ebar.recipes.training import grouped_options, trained
from ebar.report.image_sheet import Shape, sample_sheet
from ebar.types import Sequences

SUPERVISED, FM, VI, PT, LD, ENT = "supervised only", "FM", "FM+VI", "FM+PT", "FM+LD", "FM+LD+Ent"
MNIST, SVHN, CIFAR = "MNIST", "SVHN", "CIFAR-10"
CENTILE = 10  # of ε, where nothing else is said
CENTILES = (2, 20, 100)  # the others of Table C.2
LOW = {"terms.low_density": 1e-4, "terms.low_density_centile": float(CENTILE)}
# What each method has otherwise. The weights are the public code's: of VI those for CIFAR-10, of PT and Ent for SVHN.
METHODS: Mapping[str, Mapping[str, Any]] = {
    SUPERVISED: {"terms.supervised": True, "data.limit": 5000},  # shorter epochs: the unlabelled are not learnt from
    FM: {},
    VI: {"terms.variational": 1e-2},
    PT: {"terms.pull_away": 0.8},
    LD: LOW,
    ENT: {**LOW, "terms.conditional_entropy": 0.1},
}
DIGITS = {
    "data.train": "mnist/train-images-idx3-ubyte.gz", "data.test": "mnist/t10k-images-idx3-ubyte.gz",
}  # fmt: skip
# The networks for digits. That a generator starts from the mean image is not the authors'.
DENSE: Mapping[str, Mapping[str, Any]] = {
    "demo": {"classifier.widths": [16, 8], "generator.widths": [16], "generator.latent": 4},
    "cpu": {"classifier.widths": [500, 250, 125, 125, 125], "generator.widths": [250, 250]},
    "paper": {"generator.from_mean": False},
}
ADAM = {
    "optimiser.kind": "fused_adam", "optimiser.learning_rate": 3e-3, "generator_optimiser.kind": "fused_adam",
    "generator_optimiser.learning_rate": 1e-3,
}  # fmt: skip
SCALES: Mapping[str, Mapping[str, Any]] = {
    "demo": {
        "corpus": MNIST, "data.train": "toy/train.npz", "data.test": "toy/test.npz", "data.validation_size": 60,
        "labels": 6, "encoder.hidden": 8, **ADAM, "training.epochs": 2, "training.batch_size": 20,
        "training.labelled_size": 6, "training.initialise_on": 100, "training.samples": 50,
        "training.density_images": 40, "terms.low_density_share": 1.0, "terms.low_density_rows": 5,
        "density": {"limit": 40, "features": 4, "layers": 1, "components": 2, "batch_size": 10, "epochs": 1,
                    "noise": 25},
    },
    "cpu": {
        "corpus": MNIST, **DIGITS, "data.validation_size": 10_000, "labels": 100, "encoder.hidden": 250, **ADAM,
        "schedule.held": 0.6, "training.epochs": 30, "training.batch_size": 100, "training.labelled_size": 25,
        "density": {"limit": 4000, "features": 16, "layers": 4, "components": 5, "batch_size": 16, "epochs": 1,
                    "noise": 25},
    },
    # The authors' settings, but for a validation part; those of SVHN and CIFAR-10 by path.
    "paper": {
        "corpus": MNIST, **DIGITS, "data.validation_size": 5000, "labels": 100, **ADAM,
        "optimiser.betas": [0.5, 0.9999], "generator_optimiser.betas": [0.0, 0.9999],
        "training.epochs": 2000, "training.batch_size": 100,
        "training.labelled_size": 100, "terms.low_density_start": 0.0075,
        "density": {"limit": 50_000, "features": 160, "layers": 6, "components": 10, "batch_size": 16, "epochs": 50,
                    "noise": 0, "rate": 2e-4},
    },
}  # fmt: skip
COLOUR = {
    "classifier.kind": "convolutional", "generator.kind": "upsampling", "terms.matching": "absolute",
    "data.keep_labelled": True, "optimiser.betas": [0.5, 0.999], "generator_optimiser.betas": [0.0, 0.999],
}  # fmt: skip
# The other sets of scale paper, by path.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    SVHN: {
        **COLOUR, "data.train": "svhn/train_32x32.mat", "data.test": "svhn/test_32x32.mat", "labels": 1000,
        "optimiser.learning_rate": 1e-3, "generator_optimiser.learning_rate": 1e-3, "schedule.floor": 0.1,
        "training.batch_size": 64, "training.labelled_size": 64, "training.epochs": 900,
    },
    CIFAR: {
        **COLOUR, "data.train": "cifar-10/train.bin", "data.test": "cifar-10/test_batch.bin", "labels": 4000,
        "classifier.filters": [96, 192], "classifier.input_dropout": 0.2, "classifier.spatial": False,
        "optimiser.learning_rate": 6e-4, "generator_optimiser.learning_rate": 3e-4,
        "training.batch_size": 100, "training.labelled_size": 100, "training.epochs": 1200,
    },
}  # fmt: skip
SEEDS = {SUPERVISED: 5, FM: 5}  # at scale cpu; of the other methods 3
SHORTER = {"training.epochs": 15}  # of runs that compare methods with one another, at scale cpu: half of Table C.1's


def runs_of(
    methods: Sequence[str],
    centiles: Sequence[int] = (),
    others: Sequence[tuple[str, str]] = (),
    *,
    shorter: bool = False,
) -> Grid:
    """The methods over their seeds, FM+LD with other thresholds, and (set, method) of those by path at scale paper.

    `shorter`: at scale cpu the runs have fewer epochs.
    """

    def seeds(scale: str, method: str) -> range:
        return range({"demo": 1, "cpu": SEEDS.get(method, 3), "paper": 10}[scale])

    def runs(scale: str) -> list[dict[str, Any]]:
        dense = {"classifier.kind": "mlp", "generator.kind": "softplus", **DENSE[scale]}
        if shorter and scale == "cpu":
            dense |= SHORTER
        asked = [(method, CENTILE if method in (LD, ENT) else None, METHODS[method]) for method in methods]
        asked += [(LD, centile, {**LOW, "terms.low_density_centile": float(centile)}) for centile in centiles]
        found = [
            {"method": method, "centile": centile, **dense, **own, "seed": seed}
            for method, centile, own in asked for seed in seeds(scale, method)
        ]  # fmt: skip
        for corpus, method in others if scale == "paper" else ():
            own = {"corpus": corpus, "centile": None, "method": method, **OTHERS[corpus], **_named(method)}
            found += [{**own, "seed": seed} for seed in range(3)]
        return found

    return Grid(axes={"run": {scale: runs(scale) for scale in SCALES}}, scales=SCALES, make=_cell)


def _named(method: str) -> dict[str, Any]:
    """The terms of a method such as FM+PT+LD+Ent."""
    own = {"VI": METHODS[VI], "PT": METHODS[PT], "LD": LOW, "Ent": {"terms.conditional_entropy": 0.1}}
    return {key: value for part in method.split("+")[1:] for key, value in own[part].items()}


def _cell(settings: dict[str, Any]) -> Cell:
    labels, groups = grouped_options(settings)
    density, count = labels.pop("density"), labels.pop("labels")
    tree = {"seed": labels["seed"], "labels": count, **groups}
    # Plain feature matching is measured by a density, the low-density term needs it.
    asked = labels["method"] == FM or "LD" in labels["method"]
    return {**labels, "configuration": tree, "density": density if asked else None}


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """One training, measured once: the best epoch by validation error, and the last."""
    tree = cell["configuration"]
    data = {key: _file(value, folder) if key in ("train", "test") else value for key, value in tree["data"].items()}
    config = read_tree({**tree, "data": data}, MANUAL, ClassifyConfig)
    place = folder / "density"
    if cell["density"] is not None:
        train_density(cell, config.data.read(labels=config.labels, seed=config.seed), place)
    if config.terms.low_density:
        config = read_tree({**tree, "data": data, "density": str(place / "run")}, MANUAL, ClassifyConfig)
    found = classify_as(config, folder / "classify")
    result = found.result
    assert result is not None
    return {
        "ended": f"{result.status}: {result.reason}",
        "best": found.evaluate(),
        "last": found.evaluate(last=True),
        "validation": found.evaluate("validation"),
        "curve": {
            name: [(line["epoch"], line[key]) for line in found.history if key in line]
            for name in ("error", "true_share", "fake_share")
            for key in [f"validation.{name}"]
        },
        "sheet": None if found.best.generator is None else sheet(drawn(found, 100, cell["seed"])),
        "density": None if cell["density"] is None else densities(found, place, cell["seed"]),
    }  # fmt: skip


def _file(name: str, folder: Path) -> str:
    return str(toy_images(folder, name.removeprefix("toy/")) if name.startswith("toy/") else file_of(name))


def toy_images(folder: Path, name: str) -> Path:
    """Three classes of 6 × 6 pixels, each with two bright rows of its own, but for one label in seven; written once."""
    path = folder / name
    if not path.exists():
        generator = Generator().manual_seed(len(name))
        labels = torch.arange(260) % 3
        bright = torch.randint(100, 256, (260, 3, 2, 6), generator=generator)
        own = torch.arange(3)[None, :, None, None] == labels[:, None, None, None]
        images = torch.where(own, bright, 0).view(260, 6, 6).to(torch.uint8)
        wrong = torch.arange(260) % 7 == 0
        np.savez(path, images=images.numpy(), labels=torch.where(wrong, (labels + 1) % 3, labels).numpy())
    return path


def train_density(cell: Cell, data: FewLabels, folder: Path) -> None:
    """A PixelCNN with mixtures of logistics, on unlabelled images of this run: nothing held out is among them.

    With `noise`, so many levels of it at most are added to each pixel, evenly. A sharp density gives thousands of nats
    to a background that is a little too bright, and says nothing of the rest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own, images = cell["density"], folder / "images.npz"
    if not images.exists():
        kept = data.unlabelled[: own["limit"] + max(10, own["limit"] // 8)]
        noise = torch.randint(own["noise"] + 1, kept.shape, generator=Generator().manual_seed(cell["seed"]))
        noisy = (kept.long() + noise).clamp(max=255).to(torch.uint8)
        np.savez(images, images=noisy.permute(0, 2, 3, 1).numpy())
    tree = {
        "seed": cell["seed"],
        "data": {"kind": "images", "train": str(images), "validation_size": max(10, own["limit"] // 8)},
        "backbone": {"kind": "pixelcnn", "features": own["features"], "layers": own["layers"]},
        "head": {"kind": "logistic_mixture", "components": own["components"]},
        "optimiser": {"kind": "adam", "learning_rate": own.get("rate", 1e-2)},
        "schedule": {"kind": "cosine", "warmup": 20},
        "training": {
            "epochs": own["epochs"], "batch_size": own["batch_size"], "clip": 1.0, "patience": 1000,
            "held_out_batch": 100, "checkpoint_every": 100,
        },
    }  # fmt: skip
    trained({"configuration": tree}, folder)


def drawn(found: Classified, count: int, seed: int) -> Tensor:
    """Generated images of the best epoch."""
    images: Tensor = found.best.generator.sample(count, generator=Generator().manual_seed(folded(seed, "shown")))
    return images


def sheet(images: Tensor) -> str:
    """Images side by side, as a PNG in base 64."""
    count, channels, height, width = images.shape
    levels = (images * 255).round().clamp(0, 255).long().permute(0, 2, 3, 1).flatten(1)
    tokens = Sequences(levels, torch.full((count,), levels.shape[1]))
    return base64.b64encode(sample_sheet(tokens, Shape(height=height, width=width, channels=channels))).decode()


def densities(found: Classified, folder: Path, seed: int) -> dict[str, Any]:
    """By the density that was trained there: the largest of generated images, and the centiles of training images."""
    density = RasterDensity(load_trained(folder / "run").model)
    known = log_densities(density.log_density, found.data.unlabelled[:1000]).double()
    generated = log_densities(density.log_density, drawn(found, 1000, seed))
    tenth = float(torch.quantile(known, 0.1))
    return {
        "largest": float(generated.max()),
        "above": plain_share(float((generated > tenth).sum()), float(len(generated))),
        "centiles": {str(one): float(torch.quantile(known, one / 100)) for one in (2, 10, 20, 50, 100)},
    }
