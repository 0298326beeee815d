"""Moment matching as in Parshakova et al. 2019: stochastic gradient steps on λ, by rejection or by importance.

λ starts at 0; λ ← λ + α·(m − E_λ[φ]), α = 10/(1 + finished epochs), one step per 500 data. Features are brought to
the range [0, 1] that the paper's have, so that one learning rate serves all. r is drawn from in evaluation mode:
the authors' code left dropout on, so that its r was another one.

The last draws tell how far λ is from its optimum: λ* − λ ≈ H⁻¹(m − E_λ[φ]), known but for the Monte-Carlo error of
E_λ[φ]. Both are in the covariance, the first as its square, so the noise of the steps and an early end widen the
interval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.maths.exponential_family import tilt
from ebar.progress import bar
from ebar.samplers.rejection import coin
from ebar.training.moment_matching.conclusion import conclude
from ebar.training.moment_matching.matching import Fitted, Matching, Mixture, Pool, Problem, Solution, Wanted
from ebar.training.stopping import Best
from ebar.types import Distribution


@dataclass(frozen=True, kw_only=True)  # without slots: the reader of configurations lists its fields
class CoefficientSchedule:
    """When λ moves, how far, and when it stops."""

    learning_rate: float = 10.0
    """Divided by 1 + finished epochs."""
    data_batch: Count = 500
    """Data per update: |D| over this many updates make an epoch."""
    updates: Count | None = None
    """Per epoch, in place of that; moments given without data make it 10."""
    max_epochs: Count = 100
    patience: Count = 10
    """Epochs without a better Σ|E_λ[φ] − wanted|, over the epoch's mean of model moments, before it stops there."""

    def per_epoch(self, wanted: Wanted) -> int:
        if self.updates is not None:
            return self.updates
        return 10 if wanted.size is None else max(1, wanted.size // self.data_batch)


class _Scale(NamedTuple):
    low: Float[Tensor, " features"]
    width: Float[Tensor, " features"]

    def __call__(self, values: Float[Tensor, "*rows features"]) -> Float[Tensor, "*rows features"]:
        return (values - self.low) / self.width


def _scale(features: Features) -> _Scale:
    low = torch.tensor([float(feature.low) for feature in features.features], dtype=torch.float64)
    high = torch.tensor([float(feature.high) for feature in features.features], dtype=torch.float64)
    return _Scale(low, torch.where(high > low, high - low, 1.0))


class _End(NamedTuple):
    coefficients: Float[Tensor, " features"]
    trace: tuple[float, ...]


def _descend(
    schedule: CoefficientSchedule,
    wanted: Wanted,
    scale: _Scale,
    model_moments: Callable[[Float[Tensor, " features"], bool], Float[Tensor, " features"]],
) -> _End:
    """The λ of the best epoch; `model_moments` is called with λ (of scaled features) and whether an epoch begins."""
    goal = scale(wanted.moments)
    coefficients = torch.zeros_like(goal)
    best, kept, trace = Best(), coefficients, []
    updates = schedule.per_epoch(wanted)
    with bar("matching moments", schedule.max_epochs, "epochs") as progress:
        for epoch in range(schedule.max_epochs):
            total = torch.zeros_like(goal)
            for update in range(updates):
                moments = model_moments(coefficients, update == 0)
                total = total + moments
                coefficients = coefficients + schedule.learning_rate / (1 + epoch) * (goal - moments)
            distance = float(((goal - total / updates) * scale.width).abs().sum())
            trace.append(distance)
            best = best.update(distance, epoch)
            kept = coefficients if best.step == epoch else kept
            progress.advance(1)
            if best.stale >= schedule.patience:
                break
    return _End(kept / scale.width, tuple(trace))


class _Buffer:
    """The last draws' features and weights."""

    def __init__(self, size: int):
        self.size = size
        self.values: Tensor | None = None
        self.log_weights = torch.zeros(0, dtype=torch.float64)
        self.drawn = 0

    def add(self, pool: Pool) -> None:
        self.drawn += len(pool.values)
        values = pool.values if self.values is None else torch.cat([self.values, pool.values])
        self.values = values[-self.size :]
        self.log_weights = torch.cat([self.log_weights, pool.log_weights])[-self.size :]

    def forget(self) -> None:
        self.values, self.log_weights = None, self.log_weights[:0]

    def pool(self) -> Pool:
        assert self.values is not None
        return Pool(self.values, self.log_weights, torch.zeros(len(self.values), dtype=torch.long))


def _drawn(base: Distribution, proposal: Distribution | None, features: Features, n: int, generator: Generator) -> Pool:
    mixture = Mixture(base, features, batch_size=n)
    mixture.add(base if proposal is None else proposal, n, generator=generator)
    return mixture.pool()


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionMoments(Matching):
    """`rs`: E_λ[φ] over draws of r accepted with probability exp⟨λ, φ⟩/β, log β = Σ max(0, λᵢ).

    Each update draws at least one batch from r, and tests all draws still kept anew, until 10 are accepted.
    """

    schedule: CoefficientSchedule = CoefficientSchedule()
    proposals: Count = 1000
    """Drawn from r at a time."""
    accepted: Count = 10
    """Wanted for each update."""
    buffer: Count = 50_000
    """Draws of r kept and tested again."""
    max_proposals: Count = 1_000_000
    """Drawn for one update before giving up."""
    level: float = 0.95
    """Of the intervals."""

    def solve(self, problem: Problem) -> Fitted:
        base, features, wanted, proposal, generator = problem
        if proposal is not None:
            raise UserError("Matching by rejection draws from r itself: leave the proposal out, or use snis or newton.")
        scale, buffer = _scale(features), _Buffer(self.buffer)
        coins = Generator().manual_seed(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
        rate = 0.0

        def model_moments(coefficients: Tensor, first: bool) -> Tensor:
            nonlocal rate
            log_bound = coefficients.clamp(min=0).sum()
            kept, tested, fresh = [], 0, 0
            seen = buffer.values
            while True:
                pool = _drawn(base, None, features, self.proposals, generator)
                buffer.add(pool)
                fresh += self.proposals
                for values in (seen, pool.values):
                    if values is not None:
                        scaled = scale(values)
                        kept.append(scaled[coin(scaled @ coefficients - log_bound, coins)])
                        tested += len(values)
                seen = None
                count = sum(len(part) for part in kept)
                if count >= self.accepted:
                    rate = count / tested
                    return torch.cat(kept).mean(0)
                if fresh >= self.max_proposals:
                    raise UserError(
                        f"Of {tested:,} draws of r only {count} were accepted, and {self.accepted} are needed for a "
                        "step: r hardly shows what the data have, so use newton, or snis with a proposal that looks "
                        "ahead."
                    )

        end = _descend(self.schedule, wanted, scale, model_moments)
        return _conclude("rs", problem, buffer, end, self.level, rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceMoments(Matching):
    """`snis`: E_λ[φ] over the last draws of r (or of a proposal q), weighted by exp⟨λ, φ⟩·r/q with the λ of now."""

    schedule: CoefficientSchedule = CoefficientSchedule()
    samples: Count = 1000
    """New ones for each update."""
    buffer: Count = 50_000
    """Draws kept; the authors' code has 10,000, and `reset`."""
    reset: bool = False
    """Empty the buffer when an epoch begins, as the authors' code does."""
    level: float = 0.95
    """Of the intervals."""

    def solve(self, problem: Problem) -> Fitted:
        base, features, wanted, proposal, generator = problem
        scale, buffer = _scale(features), _Buffer(self.buffer)

        def model_moments(coefficients: Tensor, first: bool) -> Tensor:
            if first and self.reset:
                buffer.forget()
            buffer.add(_drawn(base, proposal, features, self.samples, generator))
            pool = buffer.pool()
            return tilt(scale(pool.values), pool.log_weights, coefficients).moments

        end = _descend(self.schedule, wanted, scale, model_moments)
        return _conclude("snis", problem, buffer, end, self.level, None)


def _conclude(
    method: str, problem: Problem, buffer: _Buffer, end: _End, level: float, acceptance_rate: float | None
) -> Fitted:
    wanted, pool = problem.wanted, buffer.pool()
    return conclude(
        method,
        Solution(problem.features, wanted, pool, end.coefficients, wanted.default_ridge(), level, "the schedule"),
        trace=end.trace,
        draws=buffer.drawn,
        iterative=True,
        acceptance_rate=acceptance_rate,
    )
