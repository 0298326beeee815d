"""One player trained in a folder of its own, and the weights that did best on held-out data."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Generator, nn

from ebar.journeys.interrupted import Interrupted
from ebar.training import Plan, Player, Source, measure, open_run, restore_weights, seeded, train
from ebar.training.optimisers import AdamW, OptimiserConfig
from ebar.training.schedules import Constant, Schedule
from ebar.types import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one model is trained."""

    epochs: int
    seed: int = 0
    optimiser: OptimiserConfig = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = 1.0
    checkpoint_every: int = 1000
    log_every: int = 10


class Log(list[dict[str, Any]]):
    """metrics.jsonl: what training and validation told."""

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one figure."""
        return [(line["step"], line[name]) for line in self if name in line]


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
) -> Log:
    """Trains the module and leaves it with its best weights, in evaluation mode; killed and called again it goes on.

    Build the module after `seeded(course.seed)`, and give the generator that it made: first weights, batches and
    dropout are then the seed's alone.
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
        result = train(
            run,
            objective,
            batches,
            {player: learner},
            plan,
            generator=generator,
            validation=lambda: measure(judge, data, generator=generator),
        )
    if result.status == "interrupted":
        raise Interrupted
    checkpoint = run.checkpoints.best()
    assert checkpoint is not None  # there is one from before the first step on
    restore_weights(checkpoint, {player: Player(module=module)})
    module.eval()
    return Log(json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
