"""Images and their labels as public sets keep them: idx, .npz, CIFAR-10's binary files, SVHN's .mat."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ebar.data.corpus import readable
from ebar.data.images import IDX_BYTES, read_image_file
from ebar.errors import UserError, no_file

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
