"""`ebar train`: fit an autoregressive model."""

import sys
from collections.abc import Callable, Sequence
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
    return carry_out_training(config, place, train_as)


def carry_out_training(
    config: Any, place: TrainPlace, journey: Callable[..., Any], *, monitor: str = "loss", unit: str = " nats per token"
) -> int:
    """Train as configured, and say how it ended: at which value of the validation figure that is monitored."""

    def work() -> Result:
        result: Result = journey(config, place.folder, quiet=place.json, replace_config=place.replace_config).result
        return result

    def show(result: Result) -> None:
        best = result.best
        held_out = (
            "" if best.value is None else f"; best validation {monitor} {best.value:.6f}{unit} at step {best.step}"
        )
        where = f"step {result.position.step}, epoch {result.position.epoch}"
        sys.stdout.write(f"finished ({result.reason}) at {where}{held_out}\n{place.folder}\n")

    with distributed.processes(config.device):
        return carry_out(place, work, to_dict=_figures, show=show)


def _figures(result: Result) -> dict[str, Any]:
    position = result.position
    return {"reason": result.reason, "step": position.step, "epoch": position.epoch, "best": result.best}
