"""Batches of a game: data, and the noise that generators turn into samples.

What is random in a game belongs to the batch, not to the process or to the moment: noise is drawn from (seed, epoch,
number of the batch), so that every process has the same, and a run that is resumed has that of the one never stopped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.maths.randomness import Law, draw_noise, folded
from ebar.maths.rows import count_rows, named_tensors


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
