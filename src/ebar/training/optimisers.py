"""Optimisers by name. Each is a frozen dataclass, its own configuration, that builds torch's.

Learning-rate schedules: pure functions of the clock, so that resuming needs no hidden state.

Each gives the factor on the optimiser's learning rate. Warm-up rises linearly, (step + 1)/warmup, so that the
first step already moves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import optim

from ebar.bounds import NonNegative
from ebar.tables import Table
from ebar.training.layerwise import Parameters
from ebar.training.triggered import AVERAGE, TriggeredAsgd
from ebar.types import Clock


@runtime_checkable
class OptimiserConfig(Protocol):
    """The hyperparameters of an optimiser."""

    def build(self, parameters: Parameters) -> optim.Optimizer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Kingma & Ba 2015. `weight_decay` is added to the gradient, hence rescaled: AdamW's is not."""

    made: ClassVar[Callable[..., optim.Optimizer]] = optim.Adam

    learning_rate: NonNegative = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def build(self, parameters: Parameters) -> optim.Optimizer:
        return type(self).made(
            parameters, lr=self.learning_rate, betas=self.betas, eps=self.epsilon, weight_decay=self.weight_decay
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedAdam(Adam):
    """Adam in one pass over all parameters: faster on a CPU for large layers, and the same but for rounding."""

    made: ClassVar[Callable[..., optim.Optimizer]] = partial(optim.Adam, fused=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019."""

    made: ClassVar[Callable[..., optim.Optimizer]] = optim.AdamW

    weight_decay: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent, with momentum where asked."""

    learning_rate: NonNegative = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def build(self, parameters: Parameters) -> optim.Optimizer:
        return optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asgd:
    """Gradient descent whose weights are averaged from step `average_from` on. Polyak & Juditsky 1992.

    The defaults neither decay the weights nor the learning rate and average from the start, as AWD-LSTM does
    (torch's own: decay 1e-4, average from step 10⁶). The average is what should be evaluated: `evaluating`.
    """

    learning_rate: NonNegative = 0.1
    average_from: int = 0
    decay: float = 0.0
    power: float = 0.75
    weight_decay: float = 0.0

    def build(self, parameters: Parameters) -> optim.Optimizer:
        return optim.ASGD(
            parameters,
            lr=self.learning_rate,
            t0=self.average_from,
            lambd=self.decay,
            alpha=self.power,
            weight_decay=self.weight_decay,
        )


class AveragingAdam(optim.Adam):
    """torch's Adam, and the mean of all weights after step `average_from`, kept under the name that ASGD's have."""

    def __init__(self, parameters: Parameters, *, average_from: int, **options: Any):
        super().__init__(parameters, **options)
        self.average_from = average_from

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; a closure is of no use to it."""
        super().step()
        for parameter, state in self.state.items():
            count = int(state["step"]) - self.average_from
            if count == 1:
                state[AVERAGE] = parameter.detach().clone()
            elif count > 1:
                state[AVERAGE].lerp_(parameter, 1 / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedAdam(Adam):
    """Adam whose weights are averaged from step `average_from` on; the average is what is evaluated and kept."""

    average_from: int = 0

    def __post_init__(self) -> None:
        if self.average_from < 0:
            raise ValueError(f"average_from must be at least 0, not {self.average_from}")

    def build(self, parameters: Parameters) -> optim.Optimizer:
        return AveragingAdam(
            parameters, average_from=self.average_from, lr=self.learning_rate, betas=self.betas, eps=self.epsilon,
            weight_decay=self.weight_decay,
        )  # fmt: skip


OPTIMISERS: Table[Any] = Table(
    "optimiser",
    {
        "adam": Adam,
        "fused_adam": FusedAdam,
        "adamw": AdamW,
        "averaged_adam": AveragedAdam,
        "sgd": Sgd,
        "asgd": Asgd,
        "triggered_asgd": TriggeredAsgd,
    },
)


@runtime_checkable
class Schedule(Protocol):
    """The factor on the learning rate, given the steps and epochs completed so far."""

    def factor(self, clock: Clock) -> float: ...


@runtime_checkable
class ForSteps(Protocol):
    """A schedule or an objective that depends on how many steps training takes in all."""

    def for_steps(self, steps: int) -> Any: ...


T = TypeVar("T")


def for_steps(entry: T, steps: int) -> T:
    """The same schedule or objective for a training of `steps` steps, where it depends on their number."""
    return cast(T, entry.for_steps(steps)) if isinstance(entry, ForSteps) else entry


def _warm(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """1 once warm."""

    warmup: int = 0

    def factor(self, clock: Clock) -> float:
        return _warm(clock.step, self.warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Falling:
    """From 1 to `floor` at `steps`, by default the end of training, and there it stays."""

    steps: int | None = None
    floor: float = 0.0
    warmup: int = 0

    def for_steps(self, steps: int) -> "_Falling":
        return replace(self, steps=steps) if self.steps is None else self

    def _done(self, step: int) -> float:
        """The share of the way from the end of the warm-up to `steps`."""
        if self.steps is None:
            raise ValueError("the schedule does not know how many steps there are: give steps, or call for_steps")
        return min(1.0, max(0.0, (step - self.warmup) / max(1, self.steps - self.warmup)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearDecay(_Falling):
    """From 1 straight down to `floor` at `steps`, by default the end of training, and there it stays."""

    def factor(self, clock: Clock) -> float:
        return _warm(clock.step, self.warmup) * (1 - (1 - self.floor) * self._done(clock.step))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLinear(_Falling):
    """1 for a share `held` of the steps, then straight down to `floor` at the last. Dai et al. 2017b's code: 2/3."""

    held: float = 2 / 3

    def __post_init__(self) -> None:
        if not 0 <= self.held < 1:
            raise ValueError(f"held must be at least 0 and below 1, not {self.held}")

    def factor(self, clock: Clock) -> float:
        fallen = max(0.0, self._done(clock.step) - self.held) / (1 - self.held)
        return _warm(clock.step, self.warmup) * (1 - (1 - self.floor) * fallen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine(_Falling):
    """From 1 down half a cosine to `floor` at `steps`, by default the end of training, and there it stays.

    Loshchilov & Hutter 2017, eq. 5.
    """

    def factor(self, clock: Clock) -> float:
        half = (1 + math.cos(math.pi * self._done(clock.step))) / 2
        return _warm(clock.step, self.warmup) * (self.floor + (1 - self.floor) * half)


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseSquareRoot:
    """√(warmup/(step + 1)) once warm: 1 at its peak. Vaswani et al. 2017, eq. 3, without the model's width."""

    warmup: int = 0

    def factor(self, clock: Clock) -> float:
        scale = max(1, self.warmup)
        return _warm(clock.step, self.warmup) * math.sqrt(scale / max(scale, clock.step + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseEpoch:
    """1/(1 + epoch): Robbins & Monro's step sizes, one per pass over the data."""

    warmup: int = 0

    def factor(self, clock: Clock) -> float:
        return _warm(clock.step, self.warmup) / (1 + clock.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDecay:
    """1 for the first epochs, then less by the same factor each epoch, down to `floor`.

    The public code of Dai et al. 2017a has 10, 0.985 and 0.05 on four Gaussians, 0, 0.985 and 0.05 on the biased
    mixture, 200, 0.99 and 0.05 on spirals, 0, 0.8 and 0.001 on digits.
    """

    constant: int = 0
    """Epochs before it falls."""
    decay: float = 0.985
    """The factor."""
    floor: float = 0.05
    """The least that it becomes."""
    warmup: int = 0

    def factor(self, clock: Clock) -> float:
        return _warm(clock.step, self.warmup) * max(self.floor, self.decay ** max(0, clock.epoch - self.constant))


SCHEDULES: Table[Any] = Table(
    "schedule",
    {
        "constant": Constant,
        "linear": LinearDecay,
        "held_linear": HeldLinear,
        "cosine": Cosine,
        "inverse_square_root": InverseSquareRoot,
        "inverse_epoch": InverseEpoch,
        "epoch_decay": EpochDecay,
    },
)
