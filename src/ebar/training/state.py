"""Between a live training and its checkpoint."""

from typing import Any

import torch
from torch import Generator, Tensor

from ebar import together
from ebar.errors import UserError
from ebar.store.writing import from_plain
from ebar.training import distributed, randomness
from ebar.training.loop import Position
from ebar.training.players import Player, Players, averaged, averaged_parameters
from ebar.training.run import Checkpoint
from ebar.training.sharding import share_of
from ebar.training.stopping import Best
from ebar.training.streams import gather_memories

FORMAT = 1


def capture(players: Players, position: Position, best: Best, generator: Generator, **state: Any) -> Checkpoint:
    """Everything that the next step depends on. Every process must call it: each has its own random state.

    Weights are as they are evaluated: where an optimiser averages them (ASGD), the averages. Those that it moves are
    kept beside its state.
    """
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for name, player in players.items():
        gather_memories(player.module)
        for key, value in _optimiser_state(player).items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{name}.{key}"] = value
            else:
                scalars.setdefault(name, {})[key] = value
        for number, parameter in averaged_parameters(player).items():
            tensors[f"moved.{name}.{number}"] = parameter.detach().clone()
    for source, own in randomness.capture_random_state(generator).items():
        for rank, value in enumerate(distributed.gather(own)):
            tensors[f"random.{rank}.{source}"] = value
    return Checkpoint(
        step=position.step,
        weights={name: _evaluated_weights(player) for name, player in players.items()},
        training=tensors,
        state={
            "format": FORMAT,
            "position": position._asdict(),
            "best": best._asdict(),
            "best_step": best.step,
            "optimisers": scalars,
            "processes": distributed.world_size(),
            **state,
        },
    )


def restore(checkpoint: Checkpoint, players: Players, generator: Generator) -> tuple[Position, Best]:
    """The inverse of `capture`. Hyperparameters are not in it: they are the configuration's."""
    state = checkpoint.state
    if state.get("format") != FORMAT:
        raise UserError(
            f"The checkpoint of step {checkpoint.step} is of another version of ebar, or of another program."
        )
    restore_weights(checkpoint, players)
    for name, player in players.items():
        start = f"optimiser.{name}."
        entries = {key[len(start) :]: value for key, value in checkpoint.training.items() if key.startswith(start)}
        _set_optimiser_state(player, {**entries, **state["optimisers"].get(name, {})})
        for number, parameter in averaged_parameters(player).items():
            # Checkpoints of earlier versions have these among the weights, in place of the averages.
            if (moved := checkpoint.training.get(f"moved.{name}.{number}")) is not None:
                parameter.data.copy_(share_of(moved, parameter))
    states: list[dict[str, Tensor]] = [{} for _ in range(state["processes"])]
    for key, value in checkpoint.training.items():
        kind, *rest = key.split(".", 2)
        if kind == "random":
            states[int(rest[0])][rest[1]] = value
    randomness.restore_among(states, generator, rank=distributed.rank(), ranks=distributed.world_size())
    return Position(**state["position"]), from_plain(Best, state["best"])


def restore_weights(checkpoint: Checkpoint, players: Players) -> None:
    """The weights alone, to evaluate or to sample from."""
    if set(players) != set(checkpoint.weights):
        had, has = ", ".join(sorted(checkpoint.weights)), ", ".join(sorted(players))
        raise UserError(f"The checkpoint of step {checkpoint.step} is of other players ({had}) than these ({has}).")
    for name, player in players.items():
        try:
            player.module.load_state_dict(_shares(checkpoint.weights[name], player))
        except RuntimeError as error:
            cause = str(error).splitlines()[-1].strip().rstrip(".")
            raise UserError(f"The checkpoint of step {checkpoint.step} does not fit this model: {cause}.") from error


def _shares(weights: dict[str, Tensor], player: Player) -> dict[str, Tensor]:
    """Of each weight what this process has of it."""
    own = player.module.state_dict() if together.world_size() > 1 else {}
    return {key: share_of(value, own[key]) if key in own else value for key, value in weights.items()}


def _evaluated_weights(player: Player) -> dict[str, Tensor]:
    if not averaged_parameters(player):
        return dict(player.module.state_dict())
    with averaged(player):  # afterwards they are themselves again: hence copies
        return {name: value.detach().clone() for name, value in player.module.state_dict().items()}


def _optimiser_state(player: Player) -> dict[str, Any]:
    """By number of the parameter and name: what torch keeps per parameter."""
    if player.optimiser is None:
        return {}
    state = player.optimiser.state
    entries = {
        f"{number}.{key}": value
        for number, parameter in enumerate(player.parameters())
        for key, value in state.get(parameter, {}).items()
    }
    for key, value in entries.items():
        if not (value is None or isinstance(value, Tensor | bool | int | float | str)):
            raise TypeError(f"the optimiser keeps a {type(value).__name__} ({key}), which cannot be saved")
    return entries


def _set_optimiser_state(player: Player, entries: dict[str, Any]) -> None:
    # Not `load_state_dict`: it casts to the parameter's dtype what was kept in another, and the last bit goes.
    if player.optimiser is None:
        return
    player.optimiser.state.clear()
    parameters = player.parameters()
    for name, value in entries.items():
        number, key = name.split(".", 1)
        parameter = parameters[int(number)]
        if isinstance(value, Tensor):
            value = share_of(value, parameter) if value.shape == parameter.shape else value
            value = value.clone() if value.dim() == 0 else value.to(parameter.device, copy=True)
        player.optimiser.state[parameter][key] = value
    if torch.is_grad_enabled():
        player.optimiser.zero_grad()
