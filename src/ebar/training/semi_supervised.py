"""Batches of labelled and unlabelled examples, with the noise of a game."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator

from ebar.data.labelled_images import FewLabels, as_numbers
from ebar.maths.randomness import Law, draw_noise, folded
from ebar.objectives.bad_gan import SemiSupervised


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
