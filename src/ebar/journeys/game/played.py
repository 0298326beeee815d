"""What a game leaves: a generator to draw from, and an energy to rank and to measure by."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.journeys.game.data import GameData
from ebar.maths.randomness import default_generator
from ebar.models.generators import sample_generator
from ebar.modes import evaluation_mode
from ebar.training.train import History, Result

ROWS = 1024  # of which energies are computed at a time


class Ranking(NamedTuple):
    """Rows by energy, the likeliest first."""

    order: Int[Tensor, " rows"]  # x[order] is sorted
    energies: Float[Tensor, " rows"]  # in the order of x, not of the ranking


@dataclass(frozen=True, kw_only=True)
class Played:
    """A generator and an energy that have learnt from each other, and how it went."""

    generator: nn.Module  # both with the last good weights, in evaluation mode
    energy: nn.Module
    inference: nn.Module | None
    data: GameData
    weight: float  # α of the entropy: at the optimum the energy is −α·log p + constant
    history: History
    result: Result | None = None  # how training ended; None where the run was loaded
    folder: Path | None = None  # None where it was trained in memory

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of what is logged with whoever moved first: gap, energy_data, energy_samples, spread."""
        return sorted(self.history.curve(f"discriminator.{name}") + self.history.curve(f"generator.{name}"))

    def sample(self, n: int, *, generator: Generator | None = None) -> Float[Tensor, "n ..."]:
        """Draws of the generator."""
        random = default_generator(next(self.generator.parameters()).device) if generator is None else generator
        return sample_generator(self.generator, n, generator=random)

    def energies(self, x: Float[Tensor, "rows ..."]) -> Float[Tensor, " rows"]:
        """The energy of each row."""
        weight = next(self.energy.parameters())
        with torch.no_grad(), evaluation_mode(self.energy):
            found = [self.energy(part.to(weight)) for part in x.split(ROWS)]
        return torch.cat(found) if found else weight.new_zeros(0)

    def rank(self, x: Float[Tensor, "rows ..."] | None = None) -> Ranking:
        """Rows by energy, by default those held out: the likeliest first."""
        energies = self.energies(self.data.rows(self.data.held_out) if x is None else x)
        return Ranking(energies.argsort(stable=True), energies)
