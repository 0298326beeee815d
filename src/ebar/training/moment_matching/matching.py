"""What moment matching is given and what it gives: the moments wanted, a way of finding λ, and λ with its errors.

Draws have their features, each evaluated once, and are weighted for r however they were drawn. r is in evaluation mode
throughout; the authors' code left its dropout on.
"""

import math
import time
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.maths.enumeration import all_sequences
from ebar.models.tilted import Tilted, propose
from ebar.modes import evaluation_mode
from ebar.progress import bar, shown
from ebar.samplers.guided import Guided
from ebar.shapes import of_shape
from ebar.store.writing import from_plain, plain
from ebar.types import Distribution, Estimate, Sequences

PRIOR = 10.0  # standard deviation of the Gaussian prior on each λ, where no ridge is given
AS_IF = 1_000_000  # data, that moments given without data are taken to come from


class Wanted(NamedTuple):
    """E[φ] as it should be, with what is known of its error."""

    moments: Float[Tensor, " features"]
    size: int | None  # of the data, None where moments were given
    values: Float[Tensor, "data features"] | None  # φ of the data

    def default_ridge(self) -> float:
        """A prior N(0, 10²) on each λ: ρ = 1/(10²·|D|), as the likelihood here is a mean over D."""
        return 1 / (PRIOR**2 * (self.size or AS_IF))

    def spread(self, features: Features) -> Float[Tensor, " features"]:
        """The standard deviation of each feature: the data's, or the largest that the moment given allows."""
        if self.values is not None:
            return self.values.std(0, unbiased=False)
        low = torch.tensor([float(feature.low) for feature in features.features], dtype=torch.float64)
        high = torch.tensor([float(feature.high) for feature in features.features], dtype=torch.float64)
        return ((self.moments - low) * (high - self.moments)).sqrt()

    def constant(self, column: int) -> bool:
        """Whether a feature is the same in all data."""
        return self.values is not None and bool((self.values[:, column] == self.values[0, column]).all())


@torch.no_grad()
def wanted_moments(features: Features, data: Sequences | None, moments: Float[Tensor, " features"] | None) -> Wanted:
    """The mean of φ over the data, or the moments given: one of the two."""
    if len(features) == 0:
        raise UserError("There is no feature to match: give at least one.")
    if (data is None) == (moments is None):
        raise UserError("Give either data or moments to match, not both and not neither.")
    if data is not None:
        if len(data.lengths) == 0:
            raise UserError("There are no data to take moments of: give at least one sequence.")
        values = features(data).double().cpu()
        return Wanted(values.mean(0), len(values), values)
    assert moments is not None
    given = moments.double().cpu()
    if len(given) != len(features):
        raise UserError(f"There are {len(features)} features and {len(given)} moments: give one for each.")
    of_shape(given, (len(features),), "The moments, one for each feature,")
    for feature, moment in zip(features.features, given.tolist(), strict=True):
        if not feature.low <= moment <= feature.high:
            raise UserError(
                f"No model has a mean of {moment:g} for {feature.name!r}, which lies between {feature.low:g} and "
                f"{feature.high:g}: give a moment in that range."
            )
    return Wanted(given, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """λ of P(x) = r(x)·exp⟨λ, φ(x)⟩ with E_p[φ] as wanted, by whichever method."""

    method: str
    names: tuple[str, ...]
    coefficients: Float[Tensor, " features"]  # λ, in float64
    covariance: Float[Tensor, "features features"] | None
    """Of λ, Monte-Carlo error and the data's together; None where a method knows none."""
    monte_carlo_covariance: Float[Tensor, "features features"] | None = None  # the part of `covariance` from the draws
    data_covariance: Float[Tensor, "features features"] | None = None  # and from the data
    data_moments: tuple[float, ...]  # what E_p[φ] was to be
    model_moments: tuple[Estimate, ...]  # what it is
    base_moments: tuple[Estimate, ...]  # what it was before, under r
    distance: float  # Σ|E_p[φ] − wanted|, ℓ1_mom in Parshakova et al. 2019, equation 6
    trace: tuple[float, ...] = ()  # that distance after each iteration (newton) or epoch (rs, snis)
    effective_sample_size: float
    acceptance_rate: float | None = None  # of rejection, at the end
    log_z: Estimate
    draws: int  # from the proposal, in all
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()  # in plain words, each says what it means for λ
    intervals: tuple[Estimate, ...] = ()  # of each λ; infinite where the data do not bound it

    def energy(self, features: Features) -> Linear:
        """E = −⟨λ, φ⟩."""
        if tuple(features.names) != self.names:
            raise ValueError(f"λ is of the features {self.names}, not {tuple(features.names)}")
        return Linear(features, self.coefficients.clone())

    def tilted(self, base: Distribution, features: Features) -> Tilted:
        """P_λ itself."""
        return Tilted(base, self.energy(features))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` reads it back."""
        return plain(self)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> "Fitted":
        """What `to_dict` made, also after a trip through JSON, where infinities are strings."""
        return from_plain(cls, tree)  # type: ignore[no-any-return]


class Problem(NamedTuple):
    """λ is wanted such that base·exp⟨λ, φ⟩ has these moments."""

    base: Distribution
    features: Features
    wanted: Wanted
    proposal: Distribution | None  # to draw from, in place of the base or beside it
    generator: Generator


class Matching(ABC):
    """A way of finding λ."""

    __slots__ = ()

    def fit(
        self,
        base: Distribution,
        features: Features,
        *,
        data: Sequences | None = None,
        moments: Float[Tensor, " features"] | None = None,
        proposal: Distribution | None = None,
        generator: Generator,
    ) -> Fitted:
        """λ at which P_λ has the moments of the data, or those given: one of the two.

        A proposal (made by `guided`, say) is drawn from beside the base (newton) or in its place (snis).
        """
        begun = time.monotonic()
        problem = Problem(base, features, wanted_moments(features, data, moments), proposal, generator)
        return replace(self.solve(problem), seconds=time.monotonic() - begun)

    @abstractmethod
    def solve(self, problem: Problem) -> Fitted:
        """`fit`, without the time it took."""


class Pool(NamedTuple):
    """φ of each draw, and its log-weight for r: (1/n)·Σ w·f(φ) estimates E_r[f(φ)]."""

    values: Float[Tensor, "draws features"]
    log_weights: Float[Tensor, " draws"]
    source: Int[Tensor, " draws"]  # which proposal it came from: draws of one source are i.i.d.
    exact: bool = False  # every sequence with its probability: nothing was drawn


class Solution(NamedTuple):
    """λ, and the draws it was found on."""

    features: Features
    wanted: Wanted
    pool: Pool
    coefficients: Float[Tensor, " features"]
    ridge: float = 0.0
    level: float = 0.95  # of the intervals
    decided: str = "the prior"  # what stopped a λ that has no finite best value: the prior, or the schedule


def allowed(
    pool: Pool, coefficients: Float[Tensor, " features"]
) -> tuple[Float[Tensor, " draws"], Bool[Tensor, " features"]]:
    """Log-weights without the draws that λ = −∞ forbids, and the features that are left."""
    hard = coefficients == -math.inf
    forbidden = (pool.values[:, hard] != 0).any(1)
    return torch.where(forbidden, -math.inf, pool.log_weights), ~hard


class _Batch(NamedTuple):
    x: Sequences
    source: int
    values: Float[Tensor, "batch features"]
    log_probs: dict[int, Tensor]  # by source; 0 is r


class Mixture:
    """Draws from r and from other proposals g, weighted as one mixture: w = r/(Σₖ αₖ·gₖ), αₖ the share of each.

    The balance heuristic (Veach and Guibas 1995): unbiased with fixed numbers from each, and with r in it no weight
    exceeds 1/α₀, whatever the other proposals miss.
    """

    def __init__(self, base: Distribution, features: Features, *, batch_size: int):
        self.features = features
        self.batch_size = batch_size
        self.sources: list[Distribution] = [base]
        self.batches: list[_Batch] = []

    @property
    def drawn(self) -> int:
        return sum(len(batch.values) for batch in self.batches)

    def add(self, source: Distribution, n: int, *, generator: Generator) -> None:
        """n more draws, from r or from a proposal new or old."""
        index = next((place for place, known in enumerate(self.sources) if known is source), len(self.sources))
        if index == len(self.sources):
            self.sources.append(source)
        base = self.sources[0]
        quiet = shown(False) if n <= self.batch_size else nullcontext()  # one batch is no progress to look at
        with quiet, bar("drawing", n, "draws") as progress, torch.no_grad(), evaluation_mode(base, source):
            for start in range(0, n, self.batch_size):
                size = min(self.batch_size, n - start)
                if isinstance(source, Guided) and source.base is base:
                    walk = source.walk(size, generator=generator)
                    x, log_probs = walk.x, {index: walk.log_prob, 0: walk.base_log_prob}
                else:
                    x, log_prob = propose(source, size, None, generator)
                    log_probs = {index: log_prob}
                known = {place: value.double().cpu() for place, value in log_probs.items()}
                self.batches.append(_Batch(x, index, self.features(x).double().cpu(), known))
                progress.advance(size)

    def pool(self) -> Pool:
        """All draws so far."""
        counts = [0] * len(self.sources)
        for batch in self.batches:
            counts[batch.source] += len(batch.values)
        used = [index for index, count in enumerate(counts) if count]
        log_weights = [self._log_weights(batch, used, counts) for batch in self.batches]
        source = torch.cat([torch.full((len(batch.values),), batch.source) for batch in self.batches])
        return Pool(torch.cat([batch.values for batch in self.batches]), torch.cat(log_weights), source)

    def _log_weights(self, batch: _Batch, used: list[int], counts: list[int]) -> Float[Tensor, " batch"]:
        if used == [0]:
            return torch.zeros(len(batch.values), dtype=torch.float64)
        for index in {0, *used} - set(batch.log_probs):
            with torch.no_grad(), evaluation_mode(self.sources[0], self.sources[index]):
                batch.log_probs[index] = self.sources[index].log_prob(batch.x).double().cpu()
        shares = [batch.log_probs[index] + math.log(counts[index] / sum(counts)) for index in used]
        return batch.log_probs[0] - torch.logsumexp(torch.stack(shares), 0)


def enumerated(base: Distribution, features: Features) -> Pool:
    """Every sequence of a small space with its exact probability."""
    everything = all_sequences(base.space)
    with torch.no_grad(), evaluation_mode(base):
        log_probs = base.log_prob(everything).double().cpu()
        values = features(everything).double().cpu()
    # Weights average to 1 over "draws", as elsewhere, so that all that follows is the same.
    return Pool(values, log_probs + math.log(len(log_probs)), torch.zeros(len(log_probs), dtype=torch.long), True)
