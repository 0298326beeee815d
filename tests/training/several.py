"""What torchrun launches: the same training, on as many processes as there are. Rank 0 writes what came out."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Generator, nn

from ebar.errors import UserError
from ebar.journeys.train import plan_of
from ebar.objectives import MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.course import Training
from ebar.training.distributed import processes, rank, same_everywhere
from ebar.training.loop import evaluate_objective, fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.train import Plan, train_run
from ebar.types import Clock, Loss
from tests.journeys.game.killed import game_trajectory, run_game
from tests.training import every_objective
from tests.training.tiny import Bigram, data, run_pretraining, run_stream


@dataclass(frozen=True)
class Game:
    """A leader learns the data; then a follower, from what the leader has become. One is used by no loss."""

    leader: MaximumLikelihood
    follower: MaximumLikelihood

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        yield from self.leader.losses(batch, clock, generator=generator)
        x = self.follower.model.log_prob(batch) - self.leader.model.log_prob(batch)
        yield Loss(x.square().mean(), "follower", {}, weight=float(len(x)))


def players_of(optimiser: str, dtype: torch.dtype = torch.float32) -> dict[str, Player]:
    seeded(3, rank=rank())  # ranks start apart, on purpose: what they share they must be given
    modules = {"leader": Bigram(), "follower": Bigram()}
    modules["leader"].unused = nn.Parameter(torch.ones(2))
    for module in modules.values():
        module.to(dtype)
    return {
        name: Player(
            module=module,
            optimiser=OPTIMISERS[optimiser](learning_rate=0.05, weight_decay=0.01).build(module.parameters()),
            clip_norm=0.5,
        )
        for name, module in modules.items()
    }


def game(players: dict[str, Player]) -> Game:
    modules: dict[str, Any] = {name: player.module for name, player in players.items()}
    return Game(*(MaximumLikelihood(model=modules[name], player=name) for name in ("leader", "follower")))


DTYPES = (torch.float32, torch.float64)
CASES = list(product(("adam", "sgd"), DTYPES))

# 49 rows: the last batch of an epoch has one row, so that of two processes one has none.
BATCHES = Batches(data=data(49), batch_size=16, seed=5)


def trajectory(
    optimiser: str, dtype: torch.dtype, *, accumulate: int = 1
) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """Weights and metrics after each of ten steps."""
    players = players_of(optimiser, dtype)
    same_everywhere(player.module for player in players.values())
    weights, metrics = {}, []
    steps = fit(game(players), BATCHES, players, generator=Generator(), accumulate=accumulate)
    for step in islice(steps, 10):
        for name, player in players.items():
            for key, value in player.module.state_dict().items():
                weights[f"{step.number}.{name}.{key}"] = value.clone()
        metrics.append(step.metrics)
    return weights, metrics


def held_out() -> dict[str, float]:
    players = players_of("sgd")
    same_everywhere(player.module for player in players.values())
    return evaluate_objective(game(players), BATCHES, generator=Generator())


def run(folder: Path, steps: int) -> None:
    players = players_of("adam")
    with open_run(folder, config="", seed=3) as opened:
        plan = Plan(steps=steps, log_every=1, checkpoint_every=3)
        train_run(opened, game(players), BATCHES, players, plan, generator=seeded(4, rank=rank()))


def refusal(training: Training) -> str | None:
    """What is said of a training that cannot be shared out."""
    try:
        plan_of(training, "cpu")
    except UserError as error:
        return str(error)
    return None


def assert_close_everywhere(found: Any, expected: Any, tolerance: float) -> None:
    """Tensors by name."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=tolerance, msg=name)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with processes():
        for optimiser, dtype in CASES:
            weights, metrics = trajectory(optimiser, dtype)
            if rank() == 0:
                save_file(weights, folder / f"{optimiser}-{dtype}.safetensors")
                (folder / f"{optimiser}-{dtype}.json").write_text(json.dumps(metrics))
        figures = held_out()
        if rank() == 0:
            (folder / "held-out.json").write_text(json.dumps(figures))
        for number, (case, dtype) in enumerate(product(every_objective.CASES, DTYPES)):
            weights, metrics = every_objective.trajectory(case, dtype)
            if rank() == 0:
                save_file(weights, folder / f"objective-{number}.safetensors")
                (folder / f"objective-{number}.json").write_text(json.dumps(metrics))
        for number, case in enumerate(every_objective.CASES):
            weights, metrics = every_objective.trajectory(case, torch.float64, accumulate=2)
            if rank() == 0:
                save_file(weights, folder / f"parts-{number}.safetensors")
                (folder / f"parts-{number}.json").write_text(json.dumps(metrics))
        refused = [refusal(Training(batch_size=3)), refusal(Training(batch_size=6, accumulate=2))]
        (folder / f"refused-{rank()}.json").write_text(json.dumps(refused))
        run(folder / "whole", 8)
        run(folder / "stopped", 4)
        run(folder / "stopped", 8)
        run_stream(folder / "stream", steps=11, dropout=0.0)
        run_stream(folder / "stream-stopped", steps=5, dropout=0.0)
        run_pretraining(folder / "pretraining", steps=11, dropout=0.0)
        run_pretraining(folder / "pretraining-stopped", steps=5, dropout=0.0)
        for parts in (1, 3):
            found = game_trajectory(accumulate=parts)
            if rank() == 0:
                save_file(found, folder / f"game-{parts}.safetensors")
        run_game(folder / "game", steps=10)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
