"""`ebar game train`: a generator and an energy, trained against each other."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ebar.build.game import game_as
from ebar.cli.folder import carry_out
from ebar.cli.train import TrainPlace, ending
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import read
from ebar.devices import device_named
from ebar.journeys.game.played import Played
from ebar.training import distributed

HALTED = 1  # the exit code of a game that failed


def main(words: Sequence[str]) -> int:
    """Play, or go on with a game that was interrupted; 1 where it was halted."""
    config, place = read(words, MANUAL, GameConfig, TrainPlace)
    found: list[Played] = []

    def work() -> Played:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the game was halted", UserWarning)  # `show` says it
            played = game_as(config, place.folder, quiet=place.json, replace_config=place.replace_config)
        if distributed.rank() == 0:
            played.report(place.folder / "report.html")
        found.append(played)
        return played

    with distributed.processes(device_named(config.device)):
        code = carry_out(place, work, to_dict=_figures, show=lambda played: _show(played, place))
    halted = any(played.result is not None and played.result.status == "halted" for played in found)
    return HALTED if halted else code


def _figures(played: Played) -> dict[str, Any]:
    result = played.result
    assert result is not None
    position = result.position
    last = {name: points[-1][1] for name in ("gap", "energy_data", "energy_samples", "spread")
            if (points := played.curve(name))}  # fmt: skip
    return {"status": result.status, "reason": result.reason, "step": position.step, "epoch": position.epoch, **last}


def _show(played: Played, place: TrainPlace) -> None:
    result = played.result
    assert result is not None
    sys.stdout.write(f"{ending(result)}\n")
    if result.status == "halted":
        sys.stdout.write("The last good state is kept: the same command goes on from it, and halts again.\n")
    sys.stdout.write(f"{place.folder / 'report.html'}\n")
