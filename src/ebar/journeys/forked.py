"""Branches that share their history: trained as one up to the fork, each its own way from there.

A comparison of objectives is paired to the last bit: the same weights, optimiser state, random state and order of
the data stand at the fork, so what differs after it is the objective's doing alone.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ebar.models.autoregressive import Autoregressive
from ebar.store.writing import TEMPORARY
from ebar.training import Source, seeded
from ebar.training.best import Course, History, train_best
from ebar.types import Objective

TRUNK = "trunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Course):
    """What all branches share, and when they part; `epochs` counts those before the fork too."""

    at: int
    """The epoch after which branches part."""


class Branch(NamedTuple):
    """A trained branch."""

    module: Autoregressive  # with the weights of the best held-out loss, in evaluation mode
    log: History

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one figure."""
        return self.log.curve(name)


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
    _train(folder / TRUNK, replace(fork, epochs=fork.at), build, trunk, batches, held_out)
    trained = {}
    for name, objective in branches.items():
        own = folder / name
        if not own.exists():
            # Copied under another name first: a branch that is there is there as a whole.
            half = folder / (TEMPORARY + name)
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(folder / TRUNK, half)
            os.replace(half, own)
        trained[name] = _train(own, fork, build, objective, batches, held_out)
    return trained


def _train(
    folder: Path,
    course: Course,
    build: Callable[[], Autoregressive],
    objective: Callable[[Autoregressive], Objective],
    batches: Source,
    held_out: Callable[[Autoregressive], tuple[Objective, Source]],
) -> Branch:
    generator = seeded(course.seed)
    module = build()
    log = train_best(folder, course, module, objective(module), batches, held_out(module), generator=generator)
    return Branch(module, log)
