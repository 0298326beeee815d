"""Second-order moment matching: features evaluated once, λ at the maximum to rounding."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Features, Followed
from ebar.maths.enumeration import has_at_most
from ebar.maths.exponential_family import Match, match
from ebar.maths.log_space import effective_sample_size
from ebar.models.tilted import Tilted
from ebar.modes import evaluation_mode
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import guided
from ebar.training.moment_matching.conclusion import conclude
from ebar.training.moment_matching.diagnosis import nearest
from ebar.training.moment_matching.matching import (
    Fitted,
    Matching,
    Mixture,
    Pool,
    Problem,
    Solution,
    Wanted,
    allowed,
    enumerated,
)
from ebar.training.moment_matching.search import FEW, Pilot, Search, rare_features
from ebar.types import Stepwise

ENOUGH = 0.2  # effective draws per draw from r, below which a look-ahead proposal is made
GOOD = 0.5  # the same from a proposal that looks ahead, above which it is not made anew
LARGEST_SPACE = 1_000_000  # sequences, for the exact expectation
PILOT = 1000  # draws of each proposal that a search tries, at most
STEEPEST = 20.0  # |λ| of a preliminary guess


class UnsatisfiedError(UserError):
    """No draw is left by the hard constraints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newton(Matching):
    """λ by Newton's method on draws whose features are evaluated once: the gradient of the likelihood set to zero.

    The draws are r's own; where r seldom shows what is wanted and an automaton can follow it, part of them come from
    a proposal that looks ahead, and all are weighted as one mixture (see `Mixture`). Where r hardly shows it at all and
    the first such proposal does not either, the next one is searched for (see `Search`), with draws that do not count.
    Intervals hold the draws' error and, where moments come from data, the data's.
    """

    draws: Count = 10_000
    """In all, from r and from proposals."""
    ridge: float | None = None
    """ρ of the penalty ½ρ|λ|² on the mean log-likelihood. Default: a weak prior, λ ~ N(0, 10²), which is
    ρ = 1/(100·|D|); moments given without data count as known from a million."""
    proposal: Literal["auto", "base", "look_ahead", "exact"] = "auto"
    """Where draws come from: r; r and a proposal that looks ahead; that where it pays; or no draws, all sequences of
    a small space with their probabilities."""
    share: float = 0.5
    """Of the draws, from proposals other than r, where there are any."""
    rounds: Count = 2
    """How often a proposal that looks ahead is made, each time with the λ found so far."""
    hard: bool = False
    """Set λ = −inf for features that are 0 in all data: what has them becomes impossible."""
    level: float = 0.95
    """Of the intervals."""
    max_iterations: Count = 100
    batch_size: Count = 4096
    """Sequences drawn at a time."""

    def solve(self, problem: Problem) -> Fitted:
        features, wanted = problem.features, problem.wanted
        if self.draws < 4 or not 0 < self.share < 1:
            raise UserError("Newton needs at least 4 draws, and a share of proposals between 0 and 1.")
        ridge = wanted.default_ridge() if self.ridge is None else self.ridge
        hard = self._hard(features, wanted)
        pool, said = self._pool(problem, hard)
        aimed = nearest(_within(pool, hard), wanted.moments, wanted.spread(features))
        coefficients, found = self._solve(pool, wanted._replace(moments=aimed), ridge, hard)
        decided = "the prior" if ridge > 0 else "the last iteration"
        return conclude(
            "newton",
            Solution(features, wanted, pool, coefficients, ridge, self.level, decided),
            aimed=torch.where(hard, wanted.moments, aimed),
            trace=found.trace,
            draws=0 if pool.exact else len(pool.values),
            said=tuple(said),
        )

    def _hard(self, features: Features, wanted: Wanted) -> Tensor:
        never = [float(feature.low) == 0 == moment for feature, moment in zip(
            features.features, wanted.moments.tolist(), strict=True)]  # fmt: skip
        return torch.tensor(never) & self.hard

    def _solve(
        self, pool: Pool, wanted: Wanted, ridge: float, hard: Tensor
    ) -> tuple[Float[Tensor, " features"], Match]:
        coefficients = torch.where(hard, -math.inf, torch.zeros(len(hard), dtype=torch.float64))
        log_weights, free = allowed(pool, coefficients)
        if not bool((log_weights > -math.inf).any()):
            raise UnsatisfiedError(
                f"None of the {len(log_weights):,} draws satisfies the hard constraints: give a proposal that looks "
                "ahead, or leave hard out."
            )
        found = match(
            pool.values[:, free], log_weights, wanted.moments[free], ridge=ridge, max_iterations=self.max_iterations
        )
        return coefficients.masked_scatter(free, found.coefficients), found

    def _pool(self, problem: Problem, hard: Tensor) -> tuple[Pool, list[str]]:
        base, features, wanted, proposal, generator = problem
        if self.proposal == "exact":
            if not has_at_most(base.space, LARGEST_SPACE):
                raise UserError(f"The model has over {LARGEST_SPACE:,} sequences, too many to enumerate: use draws.")
            return enumerated(base, features), []
        mixture = Mixture(base, features, batch_size=self.batch_size)
        if self.proposal == "base" and proposal is None:
            mixture.add(base, self.draws, generator=generator)
            return mixture.pool(), []
        others = max(1, round(self.share * self.draws))
        mixture.add(base, self.draws - others, generator=generator)
        if proposal is not None:
            mixture.add(proposal, others, generator=generator)
            return mixture.pool(), []
        said: list[str] = []
        can = isinstance(base, Stepwise) and any(isinstance(feature, Followed) for feature in features.features)
        guess = self._guess(mixture.pool(), features, wanted, hard)
        if self.proposal == "look_ahead" or (can and not guess.served):
            try:
                self._look_ahead(mixture, guess, wanted, hard, others, generator)
            except UserError as error:
                if self.proposal == "look_ahead":
                    raise
                said.append(f"All draws are r's own, since looking ahead was not possible: {error}")
        if mixture.drawn < self.draws:
            mixture.add(base, self.draws - mixture.drawn, generator=generator)
        return mixture.pool(), said

    def _look_ahead(
        self, mixture: Mixture, guess: "_Guess", wanted: Wanted, hard: Tensor, others: int, generator: Generator
    ) -> None:
        """Rounds of: make a proposal for the λ guessed, draw from it, guess again."""
        base, features = mixture.sources[0], mixture.features
        maker: Guided | None = None
        sizes = [others // self.rounds + (part < others % self.rounds) for part in range(max(self.rounds, 1))]
        for size in sizes:
            if maker is None or not guess.good:
                with torch.no_grad(), evaluation_mode(base):
                    searched = None if maker is None else self._searched(mixture, guess, wanted, hard, generator)
                    maker = searched or guided(Tilted(base, Linear(features, guess.coefficients)), generator=generator)
            if size:
                mixture.add(maker, size, generator=generator)
            guess = self._guess(mixture.pool(), features, wanted, hard)

    def _searched(
        self, mixture: Mixture, guess: "_Guess", wanted: Wanted, hard: Tensor, generator: Generator
    ) -> Guided | None:
        """For features that few of all draws show so far, though they would be common at the moments wanted."""
        pool, moments = mixture.pool(), wanted.moments
        pilot = Pilot(
            mixture.sources[0], mixture.features, moments, hard, mixture.batches[0].x, pool.values, guess.coefficients,
            pool.log_weights,
        )  # fmt: skip
        rare = {
            column: side
            for column, side in rare_features(pilot).items()
            if len(pool.values) * float(moments[column] if side > 0 else 1 - moments[column]) >= FEW
        }
        search = Search(draws=min(PILOT, len(pool.values)), batch_size=self.batch_size)
        return search.heading(pilot, rare, generator=generator) if rare else None

    def _guess(self, pool: Pool, features: Features, wanted: Wanted, hard: Tensor) -> "_Guess":
        """A preliminary λ, with half a draw added to either side of a feature so that none is infinite."""
        log_weights, free = allowed(pool, torch.where(hard, -math.inf, 0.0).double())
        coefficients = torch.where(hard, -math.inf, 0.0).double()
        served = True
        if bool((log_weights > -math.inf).any()) and bool(free.any()):
            prior = 1 / len(pool.values)
            found = match(pool.values[:, free], log_weights, wanted.moments[free], ridge=prior)
            coefficients = coefficients.masked_scatter(free, found.coefficients.clamp(-STEEPEST, STEEPEST))
            log_tilted = log_weights + pool.values[:, free] @ coefficients[free]
            size = float(effective_sample_size(log_tilted)) / len(pool.values)
        else:
            size = 0.0 if bool(hard.any()) else 1.0
        for column, feature in enumerate(features.features):
            seen = pool.values[:, column]
            moment, low, high = float(wanted.moments[column]), float(feature.low), float(feature.high)
            if float(seen.min()) == float(seen.max()) and moment != float(seen[0]) and high > low:
                served = False
                if not bool(hard[column]):
                    share = _half_added((moment - low) / (high - low), wanted.size or len(seen))
                    shown = _half_added((float(seen[0]) - low) / (high - low), len(seen))
                    logits = [math.log(one) - math.log1p(-one) for one in (share, shown)]
                    coefficients[column] = (logits[0] - logits[1]) / (high - low)
        return _Guess(coefficients, served and size >= ENOUGH, served and size >= GOOD)


@dataclass(frozen=True, slots=True)
class _Guess:
    coefficients: Tensor
    served: bool  # by the draws there are
    good: bool


def _within(pool: Pool, hard: Tensor) -> Pool:
    """The draws that hard constraints leave."""
    log_weights, _ = allowed(pool, torch.where(hard, -math.inf, 0.0).double())
    return pool._replace(log_weights=log_weights) if bool((log_weights > -math.inf).any()) else pool


def _half_added(share: float, size: int) -> float:
    return (share * size + 0.5) / (size + 1)
