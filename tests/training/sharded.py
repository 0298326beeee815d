"""Weights spread over two processes and over two pairs: steps, draws, checkpoints that others go on from."""

import json
import shutil
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

from ebar import together
from ebar.data import LanguageData
from ebar.journeys.train import train
from ebar.models.drawing import draw_fakes
from ebar.objectives import OBJECTIVES, MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.course import Training
from ebar.training.distributed import same_everywhere
from ebar.training.loop import evaluate_objective, fit
from ebar.training.optimisers import Adam, Sgd
from ebar.training.players import Player, evaluating
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.sharding import spread_weights, whole
from ebar.training.train import Plan, train_run
from tests.training.every_objective import BATCH, ENDING, LAYERED, OPTIONS, ROWS, STEPS, Trajectory, small
from tests.training.tiny import data
from tests.training.worlds import in_world

# Objective, backbone, parts of a batch, precision. A Transformer's layers are gathered one by one, an LSTM for a step.
CASES: dict[str, tuple[str, dict[str, Any], int, torch.dtype]] = {
    "single precision": ("earm", LAYERED, 1, torch.float32),
    "in parts": ("maximum_likelihood", LAYERED, 3, torch.float64),
    "draws": ("earm", LAYERED, 1, torch.float64),
    "draws of an lstm": ("earm", {}, 1, torch.float64),
    "a head of its own": ("auxiliary_losses", LAYERED, 1, torch.float64),
}
BATCHES = Batches(data=data(ROWS), batch_size=BATCH)
SAVED, ENDED = 4, 8  # steps


def players_of(name: str, options: dict[str, Any], dtype: torch.dtype, *, shard: int) -> tuple[Any, dict[str, Player]]:
    seeded(3, rank=together.rank())
    model = small(ENDING, **options).to(dtype)
    objective = OBJECTIVES.make(name, OPTIONS.get(name, {}), model=model)
    head = getattr(objective, "memory", None)
    own = [] if head is None else [head]
    same_everywhere(own)
    sharded = spread_weights(model, shard=shard)
    learnt = [parameter for module in (model, *own) for parameter in module.parameters()]
    optimiser = Sgd(learning_rate=0.3, momentum=0.9).build(learnt)
    players = {"model": Player(module=model, optimiser=optimiser, clip_norm=1.0, sharded=sharded)}
    return objective, players | ({"objective": Player(module=head)} if own else {})


def trajectory(case: str, *, shard: int) -> Trajectory:
    """Weights and metrics after each of five steps, and held-out figures at last."""
    name, options, parts, dtype = CASES[case]
    objective, players = players_of(name, options, dtype, shard=shard)
    same_everywhere(player.module for player in players.values())
    weights, metrics = {}, []
    for step in islice(fit(objective, BATCHES, players, generator=Generator().manual_seed(4), accumulate=parts), STEPS):
        for key, value in players["model"].module.state_dict().items():
            weights[f"{step.number}.{key}"] = whole(value).clone()
        metrics.append(step.metrics)
    with evaluating(*players.values()):
        metrics.append(evaluate_objective(objective.validation, BATCHES, generator=Generator()))
    return weights, metrics


CAPS = torch.tensor([1, 1, 6, 5])


def fakes(*, shard: int) -> tuple[Tensor, Tensor]:
    """Four draws, of which the first process has those that end first: it takes one step, the other up to six."""
    _, players = players_of("maximum_likelihood", LAYERED, torch.float64, shard=shard)
    rank, ranks = together.rank(), together.world_size()
    own = CAPS[4 * rank // ranks : 4 * (rank + 1) // ranks]
    with evaluating(*players.values()), together.sharing():
        found: Any = draw_fakes(players["model"].module, own, generator=Generator().manual_seed(5))  # type: ignore[arg-type]
        return together.joined(found.tokens), together.joined(found.lengths)


def run(folder: Path, steps: int, *, shard: int) -> None:
    """By Adam and E-ARM, in double precision; a checkpoint every two steps."""
    objective, players = players_of("earm", LAYERED, torch.float64, shard=shard)
    model = players["model"]
    players["model"] = Player(
        module=model.module, optimiser=Adam(learning_rate=0.01).build(model.parameters()), sharded=model.sharded
    )
    judge = MaximumLikelihood(model=objective.model)
    with open_run(folder, config="", seed=3) as opened:
        train_run(
            opened, objective, BATCHES, players, Plan(steps=steps, log_every=1, checkpoint_every=2, validate_every=3),
            generator=seeded(4, rank=together.rank()),
            validation=lambda: evaluate_objective(judge, BATCHES, generator=Generator()),
        )  # fmt: skip


def journey(folder: Path, *, shard: int) -> list[list[int]]:
    """What the trained model draws, which each process has whole."""
    corpus = LanguageData(motif="11", length=5, size=40, test_size=10).read()
    seeded(7, rank=together.rank())
    model = small(corpus.space, **LAYERED)
    training = Training(max_steps=3, batch_size=16, evaluate_steps=2, shard=shard)
    trained = train(model, corpus, training=training, seed=7, folder=folder)
    return trained.model.sample(5, generator=Generator().manual_seed(1)).rows()


def of_two(folder: Path) -> None:
    for case in CASES:
        weights, metrics = trajectory(case, shard=2)
        if together.rank() == 0:
            save_file(weights, folder / f"{case}.safetensors")
            (folder / f"{case}.json").write_text(json.dumps(metrics))
    tokens, lengths = fakes(shard=2)
    found = {"fakes": [tokens.tolist(), lengths.tolist()], "journey": journey(folder / "journey", shard=2)}
    (folder / f"found-{together.rank()}.json").write_text(json.dumps(found))
    run(folder / "two", SAVED, shard=2)


def main(folder: Path) -> None:
    in_world(2, partial(of_two, folder), folder / "store")
    for other in ("one", "four", "broken"):
        shutil.copytree(folder / "two", folder / other)
    in_world(2, lambda: run(folder / "two", ENDED, shard=2), folder / "store")
    in_world(1, lambda: run(folder / "one", ENDED, shard=1), folder / "store")
    in_world(4, lambda: run(folder / "four", ENDED, shard=2), folder / "store")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
