"""Training that ends with the weights that did best on held-out data."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Generator, nn

from ebar.errors import Interrupted, UserError
from ebar.training.batches import Source
from ebar.training.checkpoints import Checkpoints
from ebar.training.loop import measure
from ebar.training.metrics import Sink
from ebar.training.optimisers import AdamW, Constant, OptimiserConfig, Schedule
from ebar.training.players import Player, Players
from ebar.training.randomness import seeded
from ebar.training.run import Run, open_run
from ebar.training.state import restore_weights
from ebar.training.train import Plan, Result, train
from ebar.types import Objective


class History(list[dict[str, Any]]):
    """The lines of metrics.jsonl: one record for each logged step and each evaluation."""

    @classmethod
    def read(cls, folder: Path) -> "History":
        """Of a run folder."""
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return cls(json.loads(line) for line in lines)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one metric."""
        return [(line["step"], line[name]) for line in self if name in line]


def train_to_best(
    run: Run,
    objective: Objective,
    batches: Source,
    players: Players,
    plan: Plan,
    *,
    generator: Generator,
    validation: Callable[[], Mapping[str, float]],
    sinks: Sequence[Sink] = (),
) -> Result:
    """`train`, after which the players have their best weights and are in evaluation mode.

    Stopped by a signal it raises `Interrupted`, with the result of the training so far as its argument.
    """
    result = train(
        run, objective, batches, players, plan, generator=generator, validation=validation, sinks=sinks
    )  # fmt: skip
    if result.status == "interrupted":
        raise Interrupted(result)
    checkpoint = run.checkpoints.best()
    assert checkpoint is not None  # the first is written before the first step
    restore_weights(checkpoint, {name: Player(module=player.module) for name, player in players.items()})
    for player in players.values():
        player.module.eval()
    return result


def load_best(module: nn.Module, folder: Path, *, player: str = "model") -> None:
    """Gives a module the best weights of a run folder."""
    checkpoint = Checkpoints(folder / "checkpoints").best()
    if checkpoint is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    # The state of an objective is saved as a player of its own: it is no part of the module.
    own = {name: weights for name, weights in checkpoint.weights.items() if name == player}
    restore_weights(replace(checkpoint, weights=own), {player: Player(module=module)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one module is trained by `train_best`."""

    epochs: int
    seed: int = 0
    optimiser: OptimiserConfig = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = 1.0
    checkpoint_every: int = 1000
    log_every: int = 10


def train_best(
    folder: Path,
    course: Course,
    module: nn.Module,
    objective: Objective,
    batches: Source,
    held_out: tuple[Objective, Source],
    *,
    generator: Generator | None = None,
    player: str = "model",
) -> History:
    """Trains any module in a folder of its own and leaves it with its best weights, in evaluation mode.

    Without a generator, all random sources are seeded from `course.seed`. A caller that draws the first weights from
    the same seed calls `seeded` before it builds the module, and passes the generator that this returned.
    """
    generator = generator or seeded(course.seed)
    learner = Player(
        module=module,
        optimiser=course.optimiser.build(parameter for parameter in module.parameters() if parameter.requires_grad),
        schedule=course.schedule,
        clip_norm=course.clip,
    )
    judge, data = held_out
    plan = Plan(
        epochs=course.epochs,
        checkpoint_every=course.checkpoint_every,
        log_every=course.log_every,
        monitor="loss" if player == "model" else f"{player}.loss",
    )
    with open_run(folder, config="", seed=course.seed) as run:
        train_to_best(
            run,
            objective,
            batches,
            {player: learner},
            plan,
            generator=generator,
            validation=lambda: measure(judge, data, generator=generator),
        )
    return History.read(folder)
