"""Weights spread over two processes and over two pairs: steps, draws, checkpoints that others go on from."""

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

from ebar import together
from ebar.build.train import train_as
from ebar.config.reader import Chosen
from ebar.config.train import TrainConfig
from ebar.data import LanguageData
from ebar.errors import UserError
from ebar.journeys.finetune.journey import finetune
from ebar.journeys.train import train
from ebar.maths.rows import Place
from ebar.models.drawing import draw_fakes
from ebar.models.task.encoders import ENCODERS
from ebar.objectives import OBJECTIVES, Earm
from ebar.objectives.langevin import langevin
from ebar.training.batches import Batches
from ebar.training.course import Training
from ebar.training.distributed import barrier
from ebar.training.loop import evaluate_objective
from ebar.training.optimisers import Adam, AdamW
from ebar.training.players import Player, evaluating
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.sharding import spread_weights
from ebar.training.train import History, Plan, train_run
from tests.journeys.finetune.killed import classified, ranked
from tests.training import every_objective
from tests.training.every_objective import BATCH, ENDING, LAYERED, ROWS, small
from tests.training.tiny import data
from tests.training.worlds import in_world

# Every objective of the table, in double precision; and one in single precision, and with its batches in parts.
LAYERED_EARM = "earm, layers called one by one"
CASES: dict[str, dict[str, Any]] = {case: {"dtype": torch.float64} for case in (*OBJECTIVES, LAYERED_EARM)}
CASES["in parts"] = {"dtype": torch.float64, "accumulate": 3}
CASES["single precision"] = {"dtype": torch.float32}
BATCHES = Batches(data=data(ROWS), batch_size=BATCH)
SAVED, ENDED = 4, 8  # steps
BRANCHED = {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0}
TUNED = ("bidirectional", "xlnet")  # of which the layers of the first are gathered one by one


def trajectory(case: str, *, shard: int) -> every_objective.Trajectory:
    """Weights and metrics after each of five steps."""
    objective = case if case in OBJECTIVES else LAYERED_EARM
    return every_objective.trajectory(objective, **CASES[case], shard=shard)


def player_of(*, shard: int, **options: Any) -> Player:
    seeded(3, rank=together.rank())
    model = small(ENDING, **LAYERED | options).double()
    sharded = spread_weights(model, shard=shard)
    return Player(module=model, optimiser=Adam(learning_rate=0.01).build(model.parameters()), sharded=sharded)


CAPS = torch.tensor([1, 1, 6, 5])


def fakes(*, shard: int) -> tuple[Tensor, Tensor]:
    """Four draws, of which the first process has those that end first: it takes one step, the other up to six."""
    player = player_of(shard=shard)
    rank, ranks = together.rank(), together.world_size()
    own = CAPS[4 * rank // ranks : 4 * (rank + 1) // ranks]
    model: Any = player.module
    share = together.Share(Place(4 * rank // ranks, len(own), 4))
    with evaluating(player), together.sharing(share):
        found = draw_fakes(model, own, generator=Generator().manual_seed(5))
        tokens, lengths = together.joined(found.tokens, found.lengths)
        return tokens, lengths


def run(folder: Path, steps: int, *, shard: int) -> None:
    """By Adam and E-ARM, in double precision; a checkpoint every two steps."""
    player = player_of(shard=shard)
    model: Any = player.module
    objective = Earm(model=model, weight=0.5)
    players = {"model": player, "objective": Player(module=objective.memory)}
    judge = objective.validation
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


def branched(folder: Path, *, shard: int) -> list[Any]:
    """A run of E-ARM that branches from one of maximum likelihood, both with dropout 0: losses, and what it draws."""
    options = Chosen(kind="language", options={"motif": "11", "length": 5, "size": 40, "test_size": 10})
    trunk = TrainConfig(
        seed=3, device="cpu", precision="float64", data=options, backbone=Chosen(kind="transformer", options=BRANCHED),
        head=Chosen(kind="softmax", options={}), objective=Chosen(kind="maximum_likelihood", options={}),
        optimiser=Chosen(kind="adam", options={}), schedule=Chosen(kind="constant", options={}),
        training=Training(epochs=3, batch_size=16, shard=shard),
    )  # fmt: skip
    branch = replace(trunk, objective=Chosen(kind="earm", options={"start_epoch": 1, "weight": 0.5}))
    train_as(trunk, folder / "trunk", until=1)
    barrier()
    trained = train_as(branch, folder / "branch", trunk=folder / "trunk")
    losses = [value for _, value in History.read(folder / "branch").curve("validation.loss")]
    return [losses, trained.model.sample(5, generator=Generator().manual_seed(1)).rows()]


def tuned(folder: Path, network: str, *, shard: int) -> list[Any]:
    """A classifier with rates by layer and a regression beside it: losses, and what it says of texts."""
    tasks = {"class": classified(), "rank": ranked()}
    options = BRANCHED | ({"attention_dropout": 0.0} if network == "xlnet" else {})
    generator = seeded(7, rank=together.rank())
    made = ENCODERS.make(network, options, vocabulary=tasks["class"].vocabulary).double()
    found = finetune(
        made, tasks, dropout=0.0, layer_decay=0.8, seed=7, generator=generator, folder=folder / network,
        optimiser=AdamW(learning_rate=0.01), training=Training(epochs=2, batch_size=8, shard=shard),
    )  # fmt: skip
    said = found.predict(["the good film", "a poor plot"], task="class")
    return [[value for _, value in found.history.curve("validation.loss")], [one.probability for one in said]]


def refused(*, shard: int) -> str | None:
    """What is said of gradients in the middle of a step."""
    model: Any = player_of(shard=shard).module
    vectors, lengths = torch.zeros(2, 3, 8, dtype=torch.float64), torch.tensor([4, 4])
    try:
        langevin(model, vectors, lengths, steps=1, step_size=0.1, noise=1.0, generator=Generator())
    except UserError as error:
        return str(error)
    return None


def of_two(folder: Path) -> None:
    for case in CASES:
        weights, metrics = trajectory(case, shard=2)
        if together.rank() == 0:
            save_file(weights, folder / f"{case}.safetensors")
            (folder / f"{case}.json").write_text(json.dumps(metrics))
    tokens, lengths = fakes(shard=2)
    found = {"fakes": [tokens.tolist(), lengths.tolist()], "refused": refused(shard=2)}
    found["journey"] = journey(folder / "journey", shard=2)
    found["branched"] = branched(folder / "branched", shard=2)
    found["tuned"] = [tuned(folder, network, shard=2) for network in TUNED]
    (folder / f"found-{together.rank()}.json").write_text(json.dumps(found))
    run(folder / "two", SAVED, shard=2)


def of_one(folder: Path) -> None:
    run(folder / "one", ENDED, shard=1)
    run(folder / "grown", SAVED, shard=1)


def of_two_again(folder: Path) -> None:
    run(folder / "two", ENDED, shard=2)
    run(folder / "grown", ENDED, shard=2)


def main(folder: Path) -> None:
    in_world(2, partial(of_two, folder), folder / "store")
    for other in ("one", "four", "broken"):
        shutil.copytree(folder / "two", folder / other)
    in_world(1, partial(of_one, folder), folder / "store")
    in_world(2, partial(of_two_again, folder), folder / "store")
    in_world(4, lambda: run(folder / "four", ENDED, shard=2), folder / "store")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
