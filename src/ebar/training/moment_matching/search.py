"""A first λ, and a proposal for what the base seldom shows: where to draw from before moments are matched.

Draws of the base alone cannot tell the λ of a feature that few of them have. If an automaton follows it, look-ahead
proposals do have it: the search makes them with ever better coefficients.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.estimators.exact import device_of
from ebar.features.feature import Features, Followed
from ebar.maths.exponential_family import match
from ebar.maths.log_space import effective_sample_size
from ebar.models.tilted import Tilted, measured_energy
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import guided
from ebar.training.moment_matching.matching import Mixture, allowed
from ebar.types import Distribution, Sequences

ENOUGH = 0.2  # effective samples per draw of the base, below which a look-ahead proposal is made
FEW = 10  # draws with a feature (or without it): fewer do not tell how rare it is
PRIOR = 1e-4  # ridge of a first λ, so that none is infinite
ROUNDS, STRIDE = 5, 2.0  # proposals tried for rare features, and how far λ moves from one to the next
LEAST = 0.1  # share of a proposal's draws that have a rare feature, and that lack it
STEEP = 40.0  # the largest |λ| of a proposal


class Pilot(NamedTuple):
    """Draws of the base, and the λ they suggest."""

    base: Distribution
    features: Features
    wanted: Float[Tensor, " features"]  # moments, between 0 and 1
    hard: Bool[Tensor, " features"]  # wanted to be 0 in every sequence: λ = −∞
    x: Sequences
    values: Float[Tensor, "draws features"]
    coefficients: Float[Tensor, " features"]
    log_weights: Float[Tensor, " draws"]  # for P with these coefficients

    @property
    def followed(self) -> list[bool]:
        """Which features an automaton follows."""
        return [isinstance(feature, Followed) for feature in self.features.features]

    @property
    def effective(self) -> float:
        """Effective samples per draw."""
        return float(effective_sample_size(self.log_weights)) / len(self.log_weights)

    def tilted(self, coefficients: Float[Tensor, " features"]) -> Tilted:
        """The base with these coefficients."""
        energy = Linear(self.features, coefficients.clone()).to(device_of(self.base))
        return Tilted(self.base, energy).requires_grad_(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Finds a first λ and, where draws of the base do not serve, a look-ahead proposal to draw from beside it.

    For features between 0 and 1.
    """

    draws: int = 1000
    """Of the base at first, and of every proposal tried."""
    surrogate_draws: int = 4000
    """To fit the surrogate of each look-ahead proposal."""
    batch_size: int = 1024

    def pilot(
        self, base: Distribution, features: Features, wanted: Float[Tensor, " features"],
        hard: Bool[Tensor, " features"], *, generator: Generator,
    ) -> Pilot:  # fmt: skip
        """Draws of the base, and λ as if each feature were alone."""
        x = base.sample(self.draws, generator=generator)
        values = features(x).double().cpu()
        first = Pilot(base, features, wanted, hard, x, values, _alone(values, wanted, hard), values[:, 0])
        weights = -measured_energy(first.tilted(first.coefficients).energy, x).double().cpu()
        return first._replace(log_weights=weights)

    def proposal(self, pilot: Pilot, *, generator: Generator) -> Guided | None:
        """A proposal that shows what is wanted; None where draws of the base do, or no automaton can be followed."""
        rare = rare_features(pilot)
        if rare:  # the effective sample size means nothing here: where all draws are alike, so are their weights
            return self.heading(pilot, rare, generator=generator)
        if any(pilot.followed) and pilot.effective < ENOUGH:
            return self._guided(pilot, pilot.coefficients, generator)
        return None

    def heading(self, pilot: Pilot, rare: dict[int, float], *, generator: Generator) -> Guided:
        """A proposal that heads for features that few draws of the base show, as `rare_features` finds them."""
        return self._balanced(pilot, self._driven(pilot, rare, generator), rare, generator)

    def _guided(self, pilot: Pilot, coefficients: Float[Tensor, " features"], generator: Generator) -> Guided:
        return guided(pilot.tilted(coefficients), draws=self.surrogate_draws, generator=generator)

    def _driven(self, pilot: Pilot, rare: dict[int, float], generator: Generator) -> Float[Tensor, " features"]:
        """λ matched on draws of the base and of proposals that each head for one rare feature.

        A feature that even these do not show gets the largest coefficient there is.
        """
        mixture = Mixture(pilot.base, pilot.features, batch_size=self.batch_size)
        mixture.add(pilot.base, self.draws, generator=generator)
        steepest = pilot.coefficients.clone()
        for column, side in rare.items():
            steepest[column] = side * STEEP
            alone = pilot.coefficients.clone()
            alone[list(rare)] = 0.0
            alone[column] = side * STEEP
            mixture.add(self._guided(pilot, alone, generator), self.draws, generator=generator)
        pool = mixture.pool()
        log_weights, free = allowed(pool, pilot.coefficients)
        left = pool.values[log_weights > -math.inf]
        if not len(left):
            return steepest
        best = match(pool.values[:, free], log_weights, pilot.wanted[free], ridge=PRIOR).coefficients
        seen = left.amax(0) > left.amin(0)
        found = pilot.coefficients.masked_scatter(free, best.clamp(-STEEP, STEEP))
        return torch.where(free & seen, found, steepest)

    @torch.no_grad()
    def _balanced(
        self, pilot: Pilot, coefficients: Float[Tensor, " features"], rare: dict[int, float], generator: Generator
    ) -> Guided:
        """A proposal that shows each rare feature neither too seldom nor always.

        The surrogate may underestimate how likely the base is to show it, so that the right λ does not head for it.
        """
        coefficients, columns = coefficients.clone(), list(rare)
        sides = torch.tensor(list(rare.values()), dtype=torch.float64)
        for _ in range(ROUNDS):
            ahead = self._guided(pilot, coefficients, generator)
            drawn = pilot.features(ahead.sample(self.draws, generator=generator))
            shown = drawn.double().cpu().mean(0)[columns]
            shares = torch.where(sides > 0, shown, 1 - shown)
            if bool(((shares > LEAST) & (shares < 1 - LEAST)).all()):
                break
            further = (shares <= LEAST).double() - (shares >= 1 - LEAST).double()
            coefficients[columns] = (coefficients[columns] + STRIDE * sides * further).clamp(-STEEP, STEEP)
        return ahead


def _alone(
    values: Float[Tensor, "draws features"], wanted: Float[Tensor, " features"], hard: Bool[Tensor, " features"]
) -> Float[Tensor, " features"]:
    """λ of each feature as if it were the only one; half a draw is added on either side, so that none is infinite."""
    found = []
    frequencies = ((values.sum(0) + 0.5) / (len(values) + 1)).tolist()
    for moment, forbidden, frequency in zip(wanted.tolist(), hard.tolist(), frequencies, strict=True):
        if forbidden:
            found.append(-math.inf)
            continue
        odds = [math.log(share) - math.log1p(-share) for share in (moment, frequency)]
        found.append(odds[0] - odds[1])
    return torch.tensor(found, dtype=torch.float64)


def rare_features(pilot: Pilot) -> dict[int, float]:
    """Features that an automaton follows and that few draws show, of those draws that nothing forbids.

    The column of each, and the sign of the λ that shows more of it: −1 for a feature that few draws lack.
    """
    left = pilot.values[(pilot.values[:, pilot.hard] == 0).all(1)]
    left = left if len(left) else pilot.values
    found = {}
    for column, followed in enumerate(pilot.followed):
        having = float(left[:, column].sum())
        if followed and not bool(pilot.hard[column]) and min(having, len(left) - having) < FEW:
            found[column] = 1.0 if having < len(left) / 2 else -1.0
    return found
