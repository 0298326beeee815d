"""Who learns: a module with its optimiser. One player or several, as in a game."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn, optim

from ebar import together
from ebar.modes import evaluation_mode
from ebar.training.layerwise import FACTOR
from ebar.training.optimisers import Constant, Schedule
from ebar.training.sharding import Room, Sharded
from ebar.types import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A module, and what moves it.

    Without an optimiser it is kept in the checkpoints and moved by no loss: a slowly changing copy, say, or
    whatever state an objective has of its own.
    """

    module: nn.Module
    optimiser: optim.Optimizer | None = None
    schedule: Schedule = field(default_factory=Constant)
    clip_norm: float | None = None  # gradients are scaled down to at most this Euclidean norm
    sharded: Sharded | None = None  # around the module where its weights are spread over processes; no other may learn

    def parameters(self) -> list[nn.Parameter]:
        """Those the optimiser moves, in its own order."""
        if self.optimiser is None:
            return []
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]

    def set_learning_rate(self, clock: Clock, rate: float = 1.0) -> float:
        """What the schedule says now, times `rate`, and in each group times its own factor (`layerwise`).

        Returns that of a group whose factor is 1.
        """
        assert self.optimiser is not None
        factor = self.schedule.factor(clock) * rate
        for group in self.optimiser.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor * group.get(FACTOR, 1.0)
        return float(self.optimiser.param_groups[0]["initial_lr"] * factor)


Players = Mapping[str, Player]


class Learning(nn.Module):
    """A module whose `state_dict` leaves out parameters that have no gradient.

    They are the same whenever the network is loaded, so that a pretrained network with LoRA has checkpoints of a few
    megabytes.
    """

    def __init__(self, module: nn.Module, *, keep_mode: bool = False):
        super().__init__()
        self.module = module
        self.keep_mode = keep_mode

    def train(self, mode: bool = True) -> "Learning":
        """With `keep_mode`, the module stays in training or evaluation mode, as it was given."""
        return self if self.keep_mode else super().train(mode)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        fixed = {
            name
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if not parameter.requires_grad
        }
        return {name: value for name, value in self.module.state_dict().items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        wanted = self.state_dict()
        learnt = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        numbered = {f"weights.{number}": name for number, name in enumerate(learnt)}
        if set(state) == set(numbered):  # checkpoints of earlier versions had no names
            state = {numbered[key]: value for key, value in state.items()}
        if set(wanted) != set(state):
            other = sorted(set(wanted) ^ set(state))
            raise RuntimeError(f"the stored weights are of another network: {other[0]} is in one of them only")
        self.module.load_state_dict({**self.module.state_dict(), **state})


def averaged_parameters(player: Player) -> dict[int, nn.Parameter]:
    """Those whose averages the optimiser keeps, by number."""
    state = {} if player.optimiser is None else player.optimiser.state
    return {number: each for number, each in enumerate(player.parameters()) if "ax" in state.get(each, {})}


@contextmanager
def averaged(player: Player) -> Iterator[None]:
    """Inside, the parameters are ASGD's averages, where there are any; afterwards they are themselves again."""
    kept = [(parameter, parameter.detach().clone()) for parameter in averaged_parameters(player).values()]
    try:
        with torch.no_grad():
            for parameter, _ in kept:
                parameter.copy_(player.optimiser.state[parameter]["ax"])  # type: ignore[union-attr]
        yield
    finally:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)


@contextmanager
def evaluating(*players: Player) -> Iterator[None]:
    """No gradients, no dropout, averaged parameters: what a held-out figure is measured with."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluation_mode(*(player.module for player in players)))
        for player in players:
            stack.enter_context(averaged(player))
            if player.sharded is not None:
                stack.enter_context(player.sharded.in_use())
        yield


def room_for(players: Players) -> Room:
    """Room for the shares that these processes have of their players' weights, and of what goes with each weight."""
    weights = {
        f"weights/{name}/{key}": value
        for name, one in players.items()
        for key, value in one.module.state_dict().items()
    }
    numbered = {
        (name, str(number)): weight for name, one in players.items() for number, weight in enumerate(one.parameters())
    }

    def room(name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
        like = weights.get(name)
        if name.startswith("training/"):
            _, *where = name.removeprefix("training/").split(".", 3)
            like = numbered.get((where[0], where[1])) if len(where) > 1 else None
        if like is not None and together.is_share(like) and like.shape == size:
            return torch.empty_like(like, dtype=dtype)
        return torch.empty(size, dtype=dtype)

    return room
