"""Batches of a game: data, and the noise that generators turn into samples.

What is random in a game belongs to the batch, not to the process or to the moment: noise is drawn from (seed, epoch,
number of the batch), so that every process has the same, and a run that is resumed has that of the one never stopped.

Batches of labelled and unlabelled examples, with the noise of a game.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.data.labelled_images import FewLabels, as_numbers
from ebar.maths.randomness import Law, draw_noise, folded
from ebar.maths.rows import count_rows, named_tensors
from ebar.objectives.bad_gan import SemiSupervised


class Round(NamedTuple):
    """One batch of a game."""

    data: Any  # a tree of tensors that share their rows
    noise: Float[Tensor, "rows latent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithNoise:
    """Batches of another source, each a `Round` with noise of its own."""

    batches: Any  # a source that knows its number of batches
    latent: int  # numbers that a sample is made from
    seed: int
    law: Law = "normal"
    rows: int | None = None  # of noise; by default as many as of data

    def __len__(self) -> int:
        return len(self.batches)

    def at(self, epoch: int, start: int) -> Iterator[Round]:
        for number, data in enumerate(self.batches.at(epoch, start), start):
            generator = Generator().manual_seed(folded(self.seed, "noise", epoch, number))
            rows = count_rows(data) if self.rows is None else self.rows
            yield Round(data, draw_noise(rows, self.latent, self.law, generator=generator).to(_dtype(data)))


def _dtype(data: Any) -> torch.dtype:
    """That of the data, where they are numbers; torch's own otherwise."""
    found = (tensor.dtype for tensor in named_tensors(data).values() if tensor.is_floating_point())
    return next(found, torch.get_default_dtype())


@dataclass(frozen=True, slots=True, kw_only=True)
class FewLabelBatches:
    """An epoch is a pass over the unlabelled examples; labelled ones come in passes of their own, anew when they end.

    All is drawn from (seed, epoch, number of the batch). A last batch that is not full is left out.
    """

    data: FewLabels
    batch_size: int  # of unlabelled examples, and of generated ones
    labelled_size: int  # at most as many as there are
    latent: int
    law: Law
    seed: int
    dtype: torch.dtype = torch.float32  # of the numbers

    def __len__(self) -> int:
        return max(1, len(self.data.unlabelled) // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[SemiSupervised]:
        order = torch.randperm(len(self.data.unlabelled), generator=self._generator("order", epoch))
        size = min(self.labelled_size, len(self.data.labels))
        passes = len(self.data.labels) // size  # batches in a pass over the labelled examples
        for number in range(start, len(self)):
            done, place = divmod(epoch * len(self) + number, passes)
            chosen = torch.randperm(len(self.data.labels), generator=self._generator("labelled", done))
            chosen = chosen[place * size : (place + 1) * size]
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            drawn = self._generator("noise", epoch, number)
            noise = draw_noise(2 * len(rows), self.latent, self.law, generator=drawn)
            yield SemiSupervised(
                labelled=as_numbers(self.data.labelled[chosen]).to(self.dtype),
                labels=self.data.labels[chosen],
                unlabelled=as_numbers(self.data.unlabelled[rows]).to(self.dtype),
                noise=noise.view(2, len(rows), self.latent).to(self.dtype),
                chance=torch.rand((), generator=drawn),
            )

    def _generator(self, *of: int | str) -> Generator:
        return Generator().manual_seed(folded(self.seed, *of))
