"""Optimisers by name. Each is a frozen dataclass, its own configuration, that builds torch's."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import nn, optim

from ebar.tables import Table


@runtime_checkable
class OptimiserConfig(Protocol):
    """The hyperparameters of an optimiser."""

    def build(self, parameters: Iterable[nn.Parameter]) -> optim.Optimizer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Kingma & Ba 2015. `weight_decay` is added to the gradient, hence rescaled: AdamW's is not."""

    made: ClassVar[Callable[..., optim.Optimizer]] = optim.Adam

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def build(self, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
        return type(self).made(
            parameters, lr=self.learning_rate, betas=self.betas, eps=self.epsilon, weight_decay=self.weight_decay
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019."""

    made: ClassVar[Callable[..., optim.Optimizer]] = optim.AdamW

    weight_decay: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent, with momentum where asked."""

    learning_rate: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def build(self, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
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

    learning_rate: float = 0.1
    average_from: int = 0
    decay: float = 0.0
    power: float = 0.75
    weight_decay: float = 0.0

    def build(self, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
        return optim.ASGD(
            parameters,
            lr=self.learning_rate,
            t0=self.average_from,
            lambd=self.decay,
            alpha=self.power,
            weight_decay=self.weight_decay,
        )


OPTIMISERS: Table[Any] = Table("optimiser", {"adam": Adam, "adamw": AdamW, "sgd": Sgd, "asgd": Asgd})
