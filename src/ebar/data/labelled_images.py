"""Images of which few have labels: a class-balanced choice of labelled ones, the rest unlabelled, a part held out.

Images and their labels as public sets keep them: idx, .npz, CIFAR-10's binary files, SVHN's .mat.

Points along curves of the plane, of which few have labels.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from ebar.bounds import Count, check
from ebar.data.corpus import readable
from ebar.data.images import IDX_BYTES, read_image_file
from ebar.errors import UserError, no_file
from ebar.maths.manifolds import MANIFOLDS
from ebar.maths.randomness import folded

CIFAR_RECORD = 1 + 3 * 32 * 32  # a label and the planes of an image


class LabelledFile(NamedTuple):
    """What a file holds."""

    images: UInt8[Tensor, "images channels height width"]
    labels: Int[Tensor, " images"]

    def select(self, rows: Int[Tensor, " selected"]) -> "LabelledFile":
        return LabelledFile(self.images[rows], self.labels[rows])


def read_labelled_images(path: Path, labels: Path | None = None) -> LabelledFile:
    """Images and labels; by default those beside idx images, under MNIST's names, or in the same file."""
    if not path.exists():
        raise no_file(path)
    if path.suffix == ".bin":
        found = _from_cifar(path)
    elif path.suffix == ".mat":
        found = _from_svhn(path)
    elif path.suffix == ".npz":
        found = LabelledFile(_planes(path), _checked(_array(path, "labels"), path))
    else:
        beside = path.with_name(path.name.replace("images-idx3", "labels-idx1")) if labels is None else labels
        if beside == path:
            raise UserError(f"Nothing says where the labels of {path} are: name their file beside it.")
        found = LabelledFile(_planes(path), _from_idx(beside))
    if len(found.images) != len(found.labels):
        raise UserError(f"{path} has {len(found.images):,} images and {len(found.labels):,} labels: give one for each.")
    return found


def _planes(path: Path) -> UInt8[Tensor, "images channels height width"]:
    return read_image_file(path).pixels.permute(0, 3, 1, 2).contiguous()


def _from_idx(path: Path) -> Int[Tensor, " images"]:
    if not path.exists():
        raise UserError(f"There is no file {path}, which should hold the labels of the images beside it.")
    with readable(path, lambda: "its beginning") as file:
        data = file.read()
    if len(data) < 8 or data[:4] != bytes([0, 0, IDX_BYTES, 1]):
        raise UserError(f"{path} is no idx file of labels: give one with a byte for each image.")
    if len(data) - 8 != int.from_bytes(data[4:8], "big"):
        raise UserError(f"{path} has not as many bytes as its beginning says: it is damaged or cut short.")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=8).astype(np.int64))


def _array(path: Path, name: str) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        if name not in archive.files:
            raise UserError(f"{path} holds {', '.join(archive.files) or 'nothing'}: call its array of labels '{name}'.")
        return archive[name]


def _checked(array: Any, path: Path) -> Int[Tensor, " images"]:
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(f"{path} has labels of {array.dtype} and shape {array.shape}: they are one integer an image.")
    return torch.from_numpy(array.astype(np.int64))


def _from_cifar(path: Path) -> LabelledFile:
    """One byte of label, then 1024 bytes each of red, green and blue."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    if len(data) == 0 or len(data) % CIFAR_RECORD:
        raise UserError(f"{path} is no binary file of CIFAR-10, whose records have {CIFAR_RECORD:,} bytes.")
    records = torch.from_numpy(data.reshape(-1, CIFAR_RECORD).copy())
    return LabelledFile(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())


def _from_svhn(path: Path) -> LabelledFile:
    """X of height × width × channels × images, y from 1 to 10, of which 10 is the digit 0."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        held = loadmat(path)
        pixels, labels = held["X"], held["y"]
    except (KeyError, ValueError, OSError, MatReadError, NotImplementedError):
        raise UserError(f"{path} is no .mat file of SVHN, with X for images and y for labels.") from None
    if pixels.ndim != 4 or pixels.dtype != np.uint8:
        raise UserError(
            f"{path} has an X of {pixels.dtype} and shape {pixels.shape}: SVHN's has bytes in 4 dimensions."
        )
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))
    return LabelledFile(images, torch.from_numpy(labels.reshape(-1).astype(np.int64)) % 10)


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


@dataclass(frozen=True, kw_only=True)
class ManifoldData:
    """Points of classes along curves of the plane: two circles, four spins (Dai 2019 (thesis), Figure C.1)."""

    manifold: str = "four_spins"
    """two_circles or four_spins."""
    size: Count = 2000
    """Unlabelled points."""
    held_out: Count = 10_000
    """Points to validate with, and as many others to test with."""

    kind = "manifold"

    def __post_init__(self) -> None:
        check(self)

    def read(self, *, labels: int = 40, seed: int = 0) -> FewLabels:
        """In float32, `labels` of them with a label, equally many of each class; all drawn by the seed."""
        found = MANIFOLDS.choose(self.manifold)()
        classes = len(found.curves)
        if labels < classes or labels % classes:
            raise UserError(f"{labels} labels cannot be shared evenly by {classes} classes: give a multiple.")

        def draw(part: str, count: int) -> tuple[Float[Tensor, "points 2"], Int[Tensor, " points"]]:
            x, own = found.draw(count, Generator().manual_seed(folded(seed, "manifold", part)))
            return x.float(), own

        parts = {part: draw(part, self.held_out) for part in ("validation", "test")}
        labelled, own = draw("labelled", labels)
        return FewLabels(
            labelled=labelled, labels=own, unlabelled=draw("unlabelled", self.size)[0],
            validation=parts["validation"][0], validation_labels=parts["validation"][1],
            test=parts["test"][0], test_labels=parts["test"][1], classes=classes, source=self,
        )  # fmt: skip
