"""What a game leaves: a generator to draw from, and an energy to rank and to measure by."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.estimators.log_z import log_z
from ebar.evaluation.ranking import Ranking, rank_by_energy
from ebar.journeys.game.data import GameData
from ebar.maths.randomness import default_generator
from ebar.models.generators import sample_generator
from ebar.models.points import UniformBox
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.training.train import History, Result
from ebar.types import Context, Estimate, PointSpace


class Calibrated(nn.Module):
    """c(x)/α: the energy in nats, where c tends to −α·log p."""

    def __init__(self, energy: nn.Module, weight: float):
        super().__init__()
        self.energy, self.weight = energy, weight

    def forward(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        found: Tensor = self.energy(x)
        return found / self.weight


@dataclass(frozen=True, kw_only=True)
class Played:
    """A generator and an energy that have learnt from each other, and how it went."""

    generator: nn.Module  # both with the last good weights, in evaluation mode
    energy: nn.Module
    inference: nn.Module | None
    data: GameData
    weight: float  # α of the entropy, 0 where there is none
    history: History
    result: Result | None = None  # how training ended; None where the run was loaded
    folder: Path | None = None  # None where it was trained in memory

    @property
    def calibrated(self) -> nn.Module:
        """c/α, which tends to −log p + constant; without an entropy the energy as it is."""
        return Calibrated(self.energy, self.weight or 1.0)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of what is logged with whoever moves first: gap, energy_data, energy_samples, spread."""
        return sorted(self.history.curve(f"discriminator.{name}") + self.history.curve(f"generator.{name}"))

    def sample(self, n: int, *, generator: Generator | None = None) -> Float[Tensor, "n ..."]:
        """Draws of the generator."""
        random = default_generator(next(self.generator.parameters()).device) if generator is None else generator
        return sample_generator(self.generator, n, generator=random)

    def rank(self, x: Float[Tensor, "rows ..."] | None = None) -> Ranking:
        """Rows by energy, by default those held out: the likeliest first."""
        rows = self.data.rows(self.data.held_out) if x is None else x
        return rank_by_energy(self.energy, rows.to(next(self.energy.parameters())))

    def on_box(
        self, low: Float[Tensor, " dimensions"] | None = None, high: Float[Tensor, " dimensions"] | None = None
    ) -> "Tilted[Tensor, PointSpace]":
        """exp(−c/α) on a box, a model that samplers and estimators take.

        By default the box of the training points, each side moved out by a quarter of their range.
        """
        if len(self.data.shape) != 1:
            raise UserError("Only points have a box to integrate over: images have too many dimensions.")
        rows, like = self.data.rows(), next(self.energy.parameters())
        ends = rows.amin(0), rows.amax(0)
        margin = (ends[1] - ends[0]) / 4
        low = ends[0] - margin if low is None else low
        high = ends[1] + margin if high is None else high
        return Tilted(UniformBox(low.to(like), high.to(like)), self.calibrated)

    def log_z(self, *, draws: int = 20_000, generator: Generator | None = None, **box: Any) -> Estimate:
        """log ∫ exp(−c/α) over a box (`on_box`), by importance sampling from the uniform law on it."""
        model = self.on_box(**box)
        random = default_generator(next(self.energy.parameters()).device) if generator is None else generator
        found = log_z(draw(Importance(), model, draws, generator=random))[0].estimate
        base: Any = model.base
        volume = base.log_volume
        return found._replace(value=found.value + volume, low=found.low + volume, high=found.high + volume)

    def report(self, path: Path | str) -> Path:
        """One page: contours, samples and curves of points in the plane; sheets of samples and ranked images."""
        from ebar.journeys.game.report import write_game_page

        return write_game_page(self, Path(path))


def energies_of(played: Played, x: Float[Tensor, "rows ..."]) -> Float[Tensor, " rows"]:
    """The energy of each row, in evaluation mode, on the CPU in double precision."""
    return played.rank(x).energies if len(x) else torch.zeros(0, dtype=torch.float64)
