"""`ebar train`: fit an autoregressive model."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ebar.build.train import train_as
from ebar.cli.folder import RunFolder, carry_out
from ebar.config.given import kind_is_given
from ebar.config.reader import read
from ebar.config.train import MANUAL, ModelConfig, TrainConfig
from ebar.devices import device_named
from ebar.training import distributed
from ebar.training.train import Result

ENDED = {
    "steps": "these are all of --training.max_steps",
    "epochs": "these are all of --training.epochs",
    "patience": "no evaluation was better for as long as --training.patience waits",
}


@dataclass(frozen=True, kw_only=True)
class TrainPlace(RunFolder):
    """Where the run is kept."""

    replace_config: bool = False
    """Go on with a changed configuration, say with more epochs."""


def main(words: Sequence[str]) -> int:
    """Train, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, TrainConfig, TrainPlace)
    say_backbone(words, config, place)
    return carry_out_training(config, place, train_as)


def say_backbone(words: Sequence[str], config: ModelConfig, place: RunFolder) -> None:
    """Which backbone the kind of data has chosen, where nobody did, on standard error.

    An LSTM is what there is where no kind of data asks for another, and goes unsaid.
    """
    if place.json or os.environ.get("RANK", "0") != "0" or kind_is_given("backbone", words):
        return
    if config.backbone.kind == "lstm":
        return
    sys.stderr.write(
        f"backbone {config.backbone.kind}, for data of kind {config.data.kind}: --backbone.kind chooses another\n"
    )


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
        sys.stdout.write(f"{ending(result)}{held_out}\n{place.folder}\n")

    with distributed.processes(device_named(config.device)):
        return carry_out(place, work, to_dict=_figures, show=show)


def ending(result: Result) -> str:
    """Where a training ended, and why."""
    position = result.position
    epochs = f"{position.epoch} whole epoch{'' if position.epoch == 1 else 's'}"
    return f"{result.status} at step {position.step}, after {epochs}: {ENDED.get(result.reason, result.reason)}"


def _figures(result: Result) -> dict[str, Any]:
    position = result.position
    return {"reason": result.reason, "step": position.step, "epoch": position.epoch, "best": result.best}
