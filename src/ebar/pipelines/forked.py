"""Branches that share their history: trained as one up to the fork, each its own way from there.

A comparison of objectives is paired to the last bit: the same weights, optimiser state, random state and order of
the data stand at the fork, so what differs after it is the objective's doing alone.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ebar.models.autoregressive import Autoregressive
from ebar.pipelines.interrupted import Interrupted
from ebar.training import Plan, Player, Run, Source, measure, open_run, restore_weights, seeded, train
from ebar.training.optimisers import AdamW, OptimiserConfig
from ebar.training.schedules import Constant, Schedule
from ebar.training.storage import TEMPORARY
from ebar.types import Objective

TRUNK = "trunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What all branches share, and when they part."""

    epochs: int
    """Of each branch, those before the fork counted."""
    at: int
    """The epoch after which branches part."""
    seed: int = 0
    optimiser: OptimiserConfig = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = 1.0
    checkpoint_every: int = 1000
    log_every: int = 10


class Branch(NamedTuple):
    """A trained branch."""

    module: Autoregressive  # with the weights of the best held-out loss, in evaluation mode
    log: list[dict[str, Any]]  # metrics.jsonl: what training and validation told

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one figure."""
        return [(line["step"], line[name]) for line in self.log if name in line]


def train_forked(
    folder: Path,
    fork: Fork,
    build: Callable[[], Autoregressive],
    trunk: Callable[[Autoregressive], Objective],
    branches: Mapping[str, Callable[[Autoregressive], Objective]],
    batches: Source,
    held_out: Callable[[Autoregressive], tuple[Objective, Source]],
) -> dict[str, Branch]:
    """Each branch, trained; killed and called again it goes on where it was.

    `held_out` gives the objective and the data that the best weights are chosen by, the same for all branches.
    """
    _train(folder / TRUNK, fork, fork.at, build, trunk, batches, held_out)
    trained = {}
    for name, objective in branches.items():
        own = folder / name
        if not own.exists():
            # Copied under another name first: a branch that is there is there as a whole.
            half = folder / (TEMPORARY + name)
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(folder / TRUNK, half)
            os.replace(half, own)
        module, log = _train(own, fork, fork.epochs, build, objective, batches, held_out)
        trained[name] = Branch(module, log)
    return trained


def _train(
    folder: Path,
    fork: Fork,
    epochs: int,
    build: Callable[[], Autoregressive],
    objective: Callable[[Autoregressive], Objective],
    batches: Source,
    held_out: Callable[[Autoregressive], tuple[Objective, Source]],
) -> tuple[Autoregressive, list[dict[str, Any]]]:
    generator = seeded(fork.seed)
    module = build()
    player = Player(
        module=module,
        optimiser=fork.optimiser.build(module.parameters()),
        schedule=fork.schedule,
        clip_norm=fork.clip,
    )
    plan = Plan(epochs=epochs, checkpoint_every=fork.checkpoint_every, log_every=fork.log_every)
    judge, data = held_out(module)
    with open_run(folder, config="", seed=fork.seed) as run:
        result = train(
            run,
            objective(module),
            batches,
            {"model": player},
            plan,
            generator=generator,
            validation=lambda: measure(judge, data, generator=generator),
        )
    if result.status == "interrupted":
        raise Interrupted
    return _best(run, module), _log(run)


def _best(run: Run, module: Autoregressive) -> Autoregressive:
    checkpoint = run.checkpoints.best()
    assert checkpoint is not None  # there is one from before the first step on
    restore_weights(checkpoint, {"model": Player(module=module)})
    return module.eval()


def _log(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
