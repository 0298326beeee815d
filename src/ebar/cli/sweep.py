"""`ebar sweep`: many runs of `ebar train` with other values of some options."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebar.build.sweep import make_sweep
from ebar.cli.folder import RunFolder, carry_out
from ebar.cli.show import show_table
from ebar.config.reader import read
from ebar.config.sweep import MANUAL, SweepConfig
from ebar.journeys.sweep.trials import Swept, trial_folder
from ebar.shards import Workers


@dataclass(frozen=True, kw_only=True)
class SweepPlace(RunFolder, Workers):
    """Where the trials are kept, and where they are run."""


def main(words: Sequence[str]) -> int:
    """All trials, or the rest of a sweep that was stopped."""
    config, place = read(words, MANUAL, SweepConfig, SweepPlace)

    def show(made: tuple[Swept, str]) -> None:
        found, command = made
        ranked = sorted(found.trials, key=lambda one: (one.figure is None, one.figure or 0.0))
        rows = [[one.number, *one.values.values(), one.state or "under way", one.figure] for one in ranked[:10]]
        names = list(found.trials[0].values) if found.trials else []
        show_table(f"{found.folder}: {len(found.trials)} trials", ["trial", *names, "state", "validation loss"], rows)
        for one in found.trials:
            if one.state == "failed":
                sys.stderr.write(f"⚠ trial {one.number} failed: {one.problem}\n")
        sys.stdout.write(f"best: {command}\n{place.folder / 'report.html'}\n")

    return carry_out(place, lambda: make_sweep(config, place.folder, workers=place), to_dict=_figures, show=show)


def _figures(made: tuple[Swept, str]) -> dict[str, Any]:
    found, command = made
    best = None if found.best is None else found.best._asdict() | {"run": trial_folder(found.folder, found.best.number)}
    return {"best": best, "command": command, "trials": [one._asdict() for one in found.trials]}
