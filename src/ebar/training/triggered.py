"""Gradient descent that begins to average its weights once held-out data no longer improves. Merity et al. 2018.

NT-ASGD, the non-monotonically triggered averaged gradient descent of Regularizing and Optimizing LSTM Language Models
(arXiv:1708.02182, algorithm 1). All that it remembers (the held-out losses, the averages) is in its per-parameter
state, which checkpoints keep: a run goes on to the last bit as if it had never been stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn, optim

from ebar.training.layerwise import Parameters
from ebar.training.stopping import no_longer_improves

LOSSES, COUNT, AVERAGE = "losses", "averaged_steps", "ax"  # "ax" is torch's name, by which evaluation finds it


@runtime_checkable
class Watches(Protocol):
    """An optimiser that wants to know the held-out loss."""

    def validated(self, loss: float) -> bool:
        """Called after each evaluation; whether the optimiser goes on in another way from here."""


class TriggeredAveraging(optim.Optimizer):
    """torch's SGD, and from the trigger on torch's ASGD with `t0=0, lambd=0`, whose learning rate is the schedule's.

    The average is over all weights since the trigger but those after its first step, which torch leaves out too.
    """

    def __init__(self, parameters: Parameters, *, lr: float, weight_decay: float, evaluations: int):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.evaluations = evaluations

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; a closure is of no use to it."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
                parameter.add_(gradient, alpha=-group["lr"])
                state = self.state[parameter]
                if COUNT in state:
                    _average(state, parameter)

    @property
    def triggered(self) -> bool:
        """Whether it averages from here on."""
        return COUNT in self.state[self.param_groups[0]["params"][0]]

    def validated(self, loss: float) -> bool:
        """Averages from here on if the loss is above the best of those before the last `evaluations`."""
        known = self.state[self.param_groups[0]["params"][0]]
        before = known.get(LOSSES, torch.zeros(0, dtype=torch.float64)).cpu()
        known[LOSSES] = torch.cat([before, torch.tensor([loss], dtype=torch.float64)])
        if self.triggered or not no_longer_improves(known[LOSSES].tolist(), self.evaluations):
            return False
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter][COUNT] = 0
        return True


def _average(state: dict[str, Any], parameter: nn.Parameter) -> None:
    state[COUNT] += 1
    if state[COUNT] <= 2:
        state[AVERAGE] = parameter.detach().clone()
    else:
        average = state[AVERAGE]
        average.add_(parameter.sub(average).mul_(1 / (state[COUNT] - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggeredAsgd:
    """Gradient descent, averaged once the validation loss no longer improves: NT-ASGD of AWD-LSTM. Merity et al. 2018.

    From where the validation loss is above the best of all evaluations but the last few, the weights are averaged, and
    the averages are evaluated and kept as the best ones. The learning rate stays what it is. The defaults are those of
    WikiText-2 and Penn Treebank.
    """

    learning_rate: float = 30.0
    weight_decay: float = 1.2e-6
    evaluations: int = 5
    """How many of the last evaluations the best is not sought among; there must be more than these before it."""

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise ValueError(f"evaluations must be at least 1, not {self.evaluations}")

    def build(self, parameters: Parameters) -> optim.Optimizer:
        return TriggeredAveraging(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay, evaluations=self.evaluations
        )
