"""`ebar train`: fit an autoregressive model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebar.build.train import train_as
from ebar.cli.folder import RunFolder, carry_out
from ebar.config.reader import read
from ebar.config.train import MANUAL, TrainConfig
from ebar.training import distributed
from ebar.training.train import Result


@dataclass(frozen=True, kw_only=True)
class TrainPlace(RunFolder):
    """Where the run is kept."""

    replace_config: bool = False
    """Go on with a changed configuration, say with more epochs."""


def main(words: Sequence[str]) -> int:
    """Train, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, TrainConfig, TrainPlace)
    return carry_out_training(config, place)


def carry_out_training(config: TrainConfig, place: TrainPlace) -> int:
    """Train as configured, and say how it ended."""

    def work() -> Result:
        trained = train_as(config, place.folder, quiet=place.json, replace_config=place.replace_config)
        assert trained.result is not None  # of a run that was trained, not loaded
        return trained.result

    def show(result: Result) -> None:
        best = result.best
        held_out = (
            "" if best.value is None else f"; best validation loss {best.value:.6f} nats per token at step {best.step}"
        )
        where = f"step {result.position.step}, epoch {result.position.epoch}"
        sys.stdout.write(f"finished ({result.reason}) at {where}{held_out}\n{place.folder}\n")

    with distributed.processes(config.device):
        return carry_out(place, work, to_dict=training_figures, show=show)


def training_figures(result: Result) -> dict[str, Any]:
    """How a training ended, for programs."""
    position = result.position
    return {"reason": result.reason, "step": position.step, "epoch": position.epoch, "best": result.best}
