"""The folder of a run: `runs/<name>/`, a store with checkpoints in it."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from ebar.errors import UserError
from ebar.store.store import open_store
from ebar.store.writing import TEMPORARY, replace, saving, to_json
from ebar.training import distributed
from ebar.training.checkpoints import Checkpoints
from ebar.training.players import Players


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run keeps what it is: config.yaml, environment.json, metrics.jsonl, checkpoints/, results.json."""

    folder: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints")

    def write(self, name: str, content: bytes) -> None:
        """One file of the folder, replaced at once."""
        with saving(str(self.folder / name)):
            replace(self.folder / name, content)

    def add_results(self, **found: Any) -> None:
        """Results by name, beside those that results.json has already."""
        try:
            known = json.loads((self.folder / "results.json").read_text())
        except (OSError, ValueError):
            known = {}
        self.write("results.json", to_json({**known, **found}, indent=1))


@contextmanager
def open_run(
    folder: Path | None,
    *,
    config: str,
    seed: int,
    replace_config: bool = False,
    take_over: bool = False,
    quickly_made: Collection[str] = (),
    check: Callable[[Run, list[str]], None] | None = None,
    advice: str = "choose another name, or delete it",
) -> Iterator[Run]:
    """A run folder, made or found, locked against other processes; see `open_store`.

    Where several processes train together, the first one writes. Without a folder everything is removed at the end.
    """
    if folder is None and distributed.world_size() > 1:
        raise UserError("Several processes need a run folder that all of them see: give one.")
    with open_store(
        folder,
        description=config,
        seed=seed,
        writes=distributed.rank() == 0,
        replace_config=replace_config,
        take_over=take_over,
        quickly_made=quickly_made,
        check=None if check is None else lambda place, names: check(Run(place), names),
        advice=advice,
    ) as store:
        if store.writes:
            with saving(str(store.folder)):
                (store.folder / "checkpoints").mkdir(exist_ok=True)
        yield Run(store.folder)


def continue_from(trunk: Run, run: Run, players: Players) -> None:
    """Gives a run that has no checkpoint yet the checkpoints and metrics of another run, the trunk.

    Objectives that begin alike (E-ARM with `start_epoch` k is its base objective for k epochs) can be compared from one
    trunk of k epochs. Weights, optimiser state, random state and the order of the data are those of the trunk, so that
    a branch is bit for bit the run that was never branched, and branches differ by their objectives alone.

    Players that the trunk has not (the state of an objective) start as they are now; players of the trunk that this
    run has not are left out. All checkpoints appear at once: killed before that, the next call copies them anew.
    """
    if run.checkpoints.steps():
        return
    for name in ("metrics.jsonl", "timing.jsonl"):
        run.write(name, (trunk.folder / name).read_bytes())
    place = run.checkpoints.folder
    half = Checkpoints(place.with_name(TEMPORARY + place.name))
    shutil.rmtree(half.folder, ignore_errors=True)
    with saving(str(place)):
        half.folder.mkdir()
        for step in trunk.checkpoints.steps():
            checkpoint = trunk.checkpoints.read(step)
            weights = {name: checkpoint.weights.get(name, dict(player.module.state_dict()))
                       for name, player in players.items()}  # fmt: skip
            half.save(changed(checkpoint, weights=weights))
        os.rename(half.folder, place)  # in place of an empty folder
