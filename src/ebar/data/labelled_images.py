"""Images of which few have labels: a class-balanced choice of labelled ones, the rest unlabelled, a part held out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.data.image_files import LabelledFile, read_labelled_images
from ebar.errors import UserError
from ebar.maths.randomness import folded


@dataclass(frozen=True, kw_only=True)
class FewLabels:
    """Data of which few examples have labels. x are bytes of images, or numbers as they are."""

    labelled: Tensor
    labels: Int[Tensor, " labelled"]
    unlabelled: Tensor
    validation: Tensor
    validation_labels: Int[Tensor, " validation"]
    test: Tensor
    test_labels: Int[Tensor, " test"]
    classes: int
    source: Any = None  # the options it was read by

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one x."""
        return tuple(self.labelled.shape[1:])

    def part(self, name: str) -> tuple[Tensor, Int[Tensor, " examples"]]:
        """Examples of a held-out part, and what they are."""
        parts = {"validation": (self.validation, self.validation_labels), "test": (self.test, self.test_labels)}
        if name not in parts:
            raise UserError(f"There is no part {name!r}: choose one of {', '.join(parts)}.")
        return parts[name]


def as_numbers(x: Tensor) -> Float[Tensor, "batch ..."]:
    """Bytes become numbers in [0, 1]; numbers stay as they are."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def few_labels(
    train: LabelledFile, test: LabelledFile, *, labels: int, validation: int, seed: int, classes: int | None = None,
    limit: int | None = None, keep_labelled: bool = False,
) -> FewLabels:  # fmt: skip
    """A class-balanced choice of `labels` examples; `validation` others are held out; the rest have no labels.

    All is drawn by the seed. Of `limit`, at most so many are unlabelled. With `keep_labelled` the labelled ones are
    among the unlabelled too, as on SVHN and CIFAR-10 in Dai et al. 2017b; on MNIST they are not.
    """
    if test.images.shape[1:] != train.images.shape[1:]:
        theirs, ours = (" × ".join(map(str, one.images.shape[1:])) for one in (test, train))
        raise UserError(
            f"The test images are of {theirs} (channels, height, width), the training images of {ours}: give images of "
            "one size."
        )
    number = int(train.labels.max()) + 1 if classes is None else classes
    if labels % number:
        raise UserError(f"{labels} labels cannot be shared evenly by {number} classes: give a multiple of {number}.")
    order = torch.randperm(len(train.labels), generator=Generator().manual_seed(folded(seed, "few labels")))
    if validation >= len(order):
        raise UserError(f"There are {len(order):,} training images: hold out fewer than {validation:,}.")
    held_out, rest = order[:validation], order[validation:]
    chosen = []
    for label in range(number):
        own = rest[train.labels[rest] == label]
        if len(own) < labels // number:
            raise UserError(
                f"The class {label} has {len(own)} training examples to choose {labels // number} labelled ones from: "
                "give more images, or ask for fewer labels."
            )
        chosen.append(own[: labels // number])
    labelled = torch.cat(chosen)
    others = rest if keep_labelled else rest[~torch.isin(rest, labelled)]
    unlabelled = others[:limit]
    if len(unlabelled) == 0:
        raise UserError("No image is left without a label: ask for fewer labels, or hold out fewer.")
    return FewLabels(
        labelled=train.images[labelled], labels=train.labels[labelled], unlabelled=train.images[unlabelled],
        validation=train.images[held_out], validation_labels=train.labels[held_out],
        test=test.images, test_labels=test.labels, classes=number,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LabelledImagesData:
    """Images with labels (MNIST's idx files, .npz with images and labels, CIFAR-10's .bin, SVHN's .mat)."""

    train: Path
    """Training images; labels of idx files lie beside them under MNIST's name, unless train_labels names others."""
    test: Path
    """Test images, which nothing is chosen by."""
    train_labels: Path | None = None
    """Labels of the training images, an idx file."""
    test_labels: Path | None = None
    """Labels of the test images, an idx file."""
    validation_size: Count = 5000
    """Training images held out, whose labels choose the best epoch."""
    limit: Count | None = None
    """Most unlabelled images; by default all."""
    keep_labelled: bool = False
    """Whether the labelled images are among the unlabelled ones too."""

    def read(self, *, labels: int = 100, seed: int = 0) -> FewLabels:
        """With `labels` labelled examples, chosen by the seed."""
        train = read_labelled_images(self.train, self.train_labels)
        test = read_labelled_images(self.test, self.test_labels)
        found = few_labels(
            train, test, labels=labels, validation=self.validation_size, seed=seed, limit=self.limit,
            keep_labelled=self.keep_labelled,
        )  # fmt: skip
        object.__setattr__(found, "source", self)
        return found
