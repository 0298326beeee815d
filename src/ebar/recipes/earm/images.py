"""One run of an image experiment: a PixelCNN and its E-ARM twin that share their history, their costs, their draws."""

import base64
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.backbones import BACKBONES
from ebar.data.images import Images, binarised, read_images
from ebar.evaluation.bits_per_dimension import bits_difference, bits_per_dimension
from ebar.heads.softmax import Softmax
from ebar.journeys.forked import Branch, Fork, train_forked
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.recipes.earm import toys
from ebar.recipes.earm.files import file_of
from ebar.recipes.recipe import Cell
from ebar.report.image_sheet import Shape, completion_sheet, sample_sheet
from ebar.training import Batches
from ebar.training.optimisers import Adam
from ebar.training.schedules import Cosine
from ebar.types import Context, Sequences


def splits_of(cell: Cell) -> tuple[Images, Images, Images]:
    """Training, validation and test images; the last training images validate."""
    if cell["corpus"] == "toy":
        train, test = (
            Images((toys.bars(cell["images"] + cell["held_out"], seed) > 0).to(torch.uint8)[..., None], 2)
            for seed in (0, 1)
        )
    elif cell["corpus"] == "mnist":
        # One Bernoulli draw per pixel, once and for all.
        names = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
        train, test = (binarised(read_images(file_of(f"mnist/{name}")), seed=0) for name in names)
    else:
        train, test = (read_images(file_of(f"{cell['corpus']}/{split}.npz")) for split in ("train", "test"))
    held_out = cell["held_out"]
    order = torch.randperm(len(train) - held_out, generator=Generator().manual_seed(folded(cell["seed"], 1)))
    return (
        train.select(order[: cell["images"]]),
        train.select(slice(len(train) - held_out, len(train))),
        test.select(slice(0, cell["test_images"])),
    )


def train_pair(cell: Cell, train: Images, validation: Images, folder: Path) -> dict[str, Branch]:
    """The base and its twin."""
    batches = Batches(data=train, batch_size=cell["rows"], seed=cell["seed"], drop_last=True)
    held_out = Batches(data=validation, batch_size=200, shuffle=False)
    fork = Fork(
        epochs=cell["epochs"],
        at=cell["start_epoch"],
        seed=cell["seed"],
        optimiser=Adam(learning_rate=cell["learning_rate"]),
        schedule=Cosine(steps=cell["epochs"] * len(batches), warmup=cell["warmup"]),
        checkpoint_every=500,
    )

    def build() -> Autoregressive:
        backbone = BACKBONES[cell["backbone"]](
            train.levels, image_height=train.height, image_width=train.width, channels=train.channels,
            features=cell["features"], layers=cell["layers"],
        )  # fmt: skip
        return Autoregressive(backbone, Softmax(backbone.width, train.levels), train.space)

    def base(model: Autoregressive) -> MaximumLikelihood:
        return MaximumLikelihood(model=model)

    return train_forked(
        folder,
        fork,
        build,
        base,
        {"base": base, "earm": lambda model: Earm(model=model, contexts="real", **cell["earm"])},
        batches,
        lambda model: (MaximumLikelihood(model=model), held_out),
    )


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Both branches, trained, measured and drawn from."""
    train, validation, test = splits_of(cell)
    branches = train_pair(cell, train, validation, folder)
    seen = train.select(slice(0, min(len(test), 2000)))
    base, twin = (branches[name].module for name in ("base", "earm"))
    found: dict[str, Any] = {"difference": bits_difference(twin, base, test.sequences())._asdict()}
    return found | {
        name: {
            "test": bits_per_dimension(branch.module, test.sequences())._asdict(),
            "train": bits_per_dimension(branch.module, seen.sequences())._asdict(),
            "samples": _text(_samples(branch.module, test, cell)),
            "completions": _text(_completions(branch.module, test, cell)),
            "curves": {
                "validation": branch.curve("validation.loss"),
                "effective_share": branch.curve("effective_share"),
            },
            "parameters": sum(parameter.numel() for parameter in branch.module.parameters()),
        }
        for name, branch in branches.items()
    }


def _samples(model: Autoregressive, images: Images, cell: Cell) -> bytes:
    generator = Generator().manual_seed(folded(cell["seed"], 2))
    return sample_sheet(model.sample(cell["samples"], generator=generator), _shape(images))


def _completions(model: Autoregressive, images: Images, cell: Cell, each: int = 4) -> bytes:
    """The upper half given, the lower half drawn."""
    generator = Generator().manual_seed(folded(cell["seed"], 3))
    originals = images.select(slice(0, cell["samples"] // 5)).sequences()
    given = images.space.length // 2
    half = Sequences(originals.tokens[:, :given], torch.full_like(originals.lengths, given))
    rest = model.sample(each, Context(half), generator=generator)
    whole = torch.cat([half.tokens.repeat_interleave(each, 0), rest.tokens], 1)
    lengths = torch.full((len(whole),), images.space.length)
    return completion_sheet(originals, Sequences(whole, lengths), given, _shape(images))


def _shape(images: Images) -> Shape:
    return Shape(height=images.height, width=images.width, channels=images.channels, levels=images.levels)


def _text(sheet: bytes) -> str:
    return base64.b64encode(sheet).decode()
