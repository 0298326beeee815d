"""Runs that share their first epochs: a branch continues from the checkpoints of another run, the trunk.

Objectives that begin alike (E-ARM with `start_epoch` k is its base objective for k epochs) can be compared from one
trunk of k epochs. Weights, optimiser state, random state and the order of the data are those of the trunk, so that a
branch is bit for bit the run that was never branched, and branches differ by their objectives alone.
"""

import os
import shutil
from dataclasses import replace

from ebar.store.writing import TEMPORARY, saving
from ebar.training.checkpoints import Checkpoints
from ebar.training.players import Players
from ebar.training.run import Run


def continue_from(trunk: Run, run: Run, players: Players) -> None:
    """Gives a run that has no checkpoint yet the checkpoints and metrics of the trunk.

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
            half.save(replace(checkpoint, weights=weights))
        os.rename(half.folder, place)  # in place of an empty folder
