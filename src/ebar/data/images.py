"""Images: idx files (MNIST's format, plain or .gz), .npz archives, folders of PNG files."""

import math
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.data.corpus import Corpus, readable
from ebar.errors import UserError, no_file
from ebar.maths.randomness import folded
from ebar.maths.rows import evenly
from ebar.store.differences import LATER
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

    def fetch(self, rows: Int[Tensor, " selected"]) -> Sequences:
        """Some of them as tokens, in raster order."""
        tokens = self.pixels[rows].flatten(1).long()
        return Sequences(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device))

    def sequences(self) -> Sequences:
        """All of them as tokens."""
        return self.fetch(torch.arange(len(self)))


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


def read_image_file(path: Path) -> Images:
    """Images of 256 levels from an idx file, a .npz archive, or a folder of PNG files (in the order of their names)."""
    if path.is_dir():
        array = _from_folder(path)
    elif not path.exists():
        raise no_file(path)
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
    with readable(path, lambda: "its beginning") as file:
        data = file.read()
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
    except ValueError:  # whose words, of pickles, are no help
        raise UserError(f"{path} is not a readable .npz archive of numbers: write it with numpy.savez.") from None
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
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


@dataclass(frozen=True, kw_only=True)
class ImagesData:
    """Images of one size (idx files, .npz archives, folders of PNG files)."""

    train: Path
    """Training images."""
    validation: Path | None = None
    """Held-out images for early stopping; without a file, the last tenth of the training images."""
    test: Path | None = None
    """Held-out images for `ebar evaluate`; without a file, the validation images."""
    limit: Count | None = None
    """Most training images, drawn by the run's seed; by default all."""
    held_out_limit: Count | None = field(default=None, metadata=LATER)
    """Most validation images and test images, evenly spaced; by default all."""
    validation_size: Count | None = None
    """Without a validation file, so many of the last training images in place of a tenth."""
    binary: bool = False
    """Black or white: one draw for each pixel, once and for all, with its intensity for a probability."""
    binary_seed: int = 0
    """Of those draws."""

    kind = "images"
    backbone = "gated_pixelcnn"  # what suits it, where nobody says otherwise

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """As many tokens as the images have values."""
        if maximal_length is not None:
            raise UserError("The sequences of images data have one length: leave out training.maximal_length.")
        train = self._images(self.train)
        if self.validation is not None:
            validation = self._images(self.validation)
        else:
            if len(train) < 2:
                raise UserError(f"{self.train} has only one image: give more, or a validation file.")
            cut = len(train) - (max(1, len(train) // 10) if self.validation_size is None else self.validation_size)
            if cut < 1:
                raise UserError(f"{self.train} has {len(train)} images: a smaller data.validation_size leaves some.")
            train, validation = train.select(slice(0, cut)), train.select(slice(cut, len(train)))
        if self.limit is not None:
            order = torch.randperm(len(train), generator=Generator().manual_seed(folded(seed, 1)))
            train = train.select(order[: self.limit])
        test = validation if self.test is None else self._images(self.test)
        if self.held_out_limit is not None:
            validation, test = (part.select(evenly(len(part), self.held_out_limit)) for part in (validation, test))
        for part, path in ((validation, self.validation), (test, self.test)):
            if part.pixels.shape[1:] != train.pixels.shape[1:]:
                theirs, ours = (" × ".join(map(str, images.pixels.shape[1:])) for images in (part, train))
                raise UserError(
                    f"{path} has images of {theirs} (height, width, channels), the training images are {ours}."
                )
        return Corpus(
            tokeniser=None,
            space=train.space,
            source=self,
            parts={"train": train, "validation": validation, "test": test},
            shape={"image_height": train.height, "image_width": train.width, "channels": train.channels},
        )

    def _images(self, path: Path) -> Images:
        images = read_image_file(path)
        return binarised(images, self.binary_seed) if self.binary else images
