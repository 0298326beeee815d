"""Images: idx files (MNIST's format, plain or .gz), .npz archives, folders of PNG files."""

import gzip
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.types import Sequences, Space

IDX_BYTES = 8  # the code of unsigned bytes in the third byte of an idx file


@dataclass(frozen=True, slots=True)
class Images:
    """Images of one size, as bytes: an eighth of the memory that tokens take, which they become a batch at a time."""

    pixels: UInt8[Tensor, "images height width channels"]
    levels: int = 256  # of intensity: 2 where they are black and white

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def height(self) -> int:
        return self.pixels.shape[1]

    @property
    def width(self) -> int:
        return self.pixels.shape[2]

    @property
    def channels(self) -> int:
        return self.pixels.shape[3]

    @property
    def space(self) -> Space:
        """Row by row, the channels of a pixel one after another."""
        return Space(self.levels, self.height * self.width * self.channels, completes=True)

    def select(self, rows: Int[Tensor, " selected"] | slice) -> "Images":
        return Images(self.pixels[rows], self.levels)

    def sequences(self) -> Sequences:
        """All of them as tokens."""
        return sequences_of(self.pixels)


def sequences_of(pixels: UInt8[Tensor, "images height width channels"]) -> Sequences:
    """Tokens in raster order."""
    tokens = pixels.reshape(len(pixels), -1).long()
    return Sequences(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device))


def images_of(x: Sequences, *, height: int, width: int, channels: int = 1, levels: int = 256) -> Images:
    """The way back: whole sequences as images."""
    tokens = x.tokens[:, : height * width * channels]
    return Images(tokens.reshape(-1, height, width, channels).to(torch.uint8), levels)


@runtime_checkable
class _Batches(Protocol):
    def __len__(self) -> int: ...

    def at(self, epoch: int, start: int) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class ImageBatches:
    """Batches of bytes → batches of sequences, each only when its turn comes."""

    pixels: _Batches

    def __len__(self) -> int:
        return len(self.pixels)

    def at(self, epoch: int, start: int) -> Iterator[Sequences]:
        for batch in self.pixels.at(epoch, start):
            yield sequences_of(batch)


def binarised(images: Images, seed: int) -> Images:
    """One Bernoulli draw for each pixel, once and for all, with probability intensity/255."""
    if images.levels != 256:
        raise UserError(f"Images of {images.levels} levels cannot be binarised: only those of 256 can.")
    generator = Generator().manual_seed(seed)
    drawn = torch.empty_like(images.pixels)
    for start in range(0, len(images), 1024):  # a uniform number for each pixel of a set would fill the memory
        part = images.pixels[start : start + 1024]
        drawn[start : start + 1024] = torch.rand(part.shape, generator=generator) * 255 < part
    return Images(drawn, 2)


def read_images(path: Path) -> Images:
    """Images of 256 levels from an idx file, a .npz archive, or a folder of PNG files (in the order of their names)."""
    if path.is_dir():
        array = _from_folder(path)
    elif not path.exists():
        raise UserError(f"There is no file {path}.")
    elif path.suffix == ".npz":
        array = _from_npz(path)
    else:
        array = _from_idx(path)
    if array.ndim == 3:
        array = array[..., None]
    if 0 in array.shape:
        raise UserError(f"{path} holds no image: its shape is {array.shape}.")
    return Images(torch.from_numpy(np.ascontiguousarray(array)))


def _from_idx(path: Path) -> NDArray[np.uint8]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise UserError(f"{path} cannot be decompressed: it is damaged or cut short.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(data) < 4 or data[:3] != bytes([0, 0, IDX_BYTES]):
        raise UserError(f"{path} is no idx file of bytes: give one, an .npz archive, or a folder of PNG files.")
    dimensions = data[3]
    if dimensions not in (3, 4):
        what = "labels, it seems" if dimensions == 1 else f"{dimensions} dimensions"
        raise UserError(f"{path} holds {what}: images have 3 dimensions (number, height, width), or 4 with channels.")
    shape = np.frombuffer(data, ">u4", count=dimensions, offset=4) if len(data) >= 4 + 4 * dimensions else None
    if shape is None or len(data) - 4 - 4 * dimensions != math.prod(map(int, shape)):
        raise UserError(f"{path} has not as many bytes as its beginning says: it is damaged or cut short.")
    # A copy, because torch wants memory it may write to.
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape([int(size) for size in shape]).copy()


def _from_npz(path: Path) -> NDArray[np.uint8]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            if "images" not in names and len(names) != 1:
                raise UserError(f"{path} holds {', '.join(names) or 'nothing'}: call its array of images 'images'.")
            array = archive["images" if "images" in names else names[0]]
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError) as error:
        raise UserError(f"{path} is not a readable .npz archive: {error}.") from None
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        wanted = "bytes (uint8) with 3 dimensions (number, height, width), or 4 with channels"
        raise UserError(f"{path} holds {array.dtype} of shape {array.shape}: images are {wanted}.")
    return np.asarray(array)


def _from_folder(path: Path) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("PNG files need pillow: pip install pillow.") from None
    files = sorted(path.glob("*.png"))
    if not files:
        raise UserError(f"{path} holds no file that ends in .png.")
    arrays: list[NDArray[np.uint8]] = []
    for file in files:
        try:
            with Image.open(file) as image:
                array = np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))
        except OSError:
            raise UserError(f"{file} is not a readable PNG file.") from None
        if arrays and array.shape != arrays[0].shape:
            sizes = f"{_size(array)} where {files[0].name} has {_size(arrays[0])}"
            raise UserError(f"{file} has {sizes}: all images of a folder must have one size and one kind.")
        arrays.append(array)
    return np.stack(arrays)


def _size(array: NDArray[np.uint8]) -> str:
    return f"{array.shape[1]} × {array.shape[0]} pixels in {'grey' if array.ndim == 2 else 'colour'}"
