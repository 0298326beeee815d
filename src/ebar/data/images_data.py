"""Images of one size as a corpus."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.data.corpus import Corpus
from ebar.data.images import Images, binarised, read_images
from ebar.errors import UserError
from ebar.maths.randomness import folded


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
    validation_size: Count | None = None
    """Without a validation file, so many of the last training images in place of a tenth."""
    binary: bool = False
    """Black or white: one draw for each pixel, once and for all, with its intensity for a probability."""
    binary_seed: int = 0
    """Of those draws."""

    kind = "images"

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
                raise UserError(f"{self.train} has {len(train)} images: a smaller self.validation_size leaves some.")
            train, validation = train.select(slice(0, cut)), train.select(slice(cut, len(train)))
        if self.limit is not None:
            order = torch.randperm(len(train), generator=Generator().manual_seed(folded(seed, 1)))
            train = train.select(order[: self.limit])
        test = validation if self.test is None else self._images(self.test)
        for part, path in ((validation, self.validation), (test, self.test)):
            if part.pixels.shape[1:] != train.pixels.shape[1:]:
                sizes = (" × ".join(map(str, images.pixels.shape[1:])) for images in (part, train))
                raise UserError("{} has images of {} (height, width, channels), the training images are {}."
                                .format(path, *sizes))  # fmt: skip
        return Corpus(
            tokeniser=None,
            space=train.space,
            source=self,
            parts={"train": train, "validation": validation, "test": test},
            shape={"image_height": train.height, "image_width": train.width, "channels": train.channels},
        )

    def _images(self, path: Path) -> Images:
        images = read_images(path)
        return binarised(images, self.binary_seed) if self.binary else images
