"""`ebar train`: fit an autoregressive model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.train import train_as
from ebar.cli.folder import Place
from ebar.cli.show import show_json
from ebar.config.reader import read
from ebar.config.train import MANUAL, TrainConfig
from ebar.errors import Interrupted
from ebar.progress import shown
from ebar.training import Result, distributed


@dataclass(frozen=True, kw_only=True)
class TrainPlace(Place):
    """Where the run is kept."""

    replace_config: bool = False
    """Go on with a changed configuration, say with more epochs."""


def main(words: Sequence[str]) -> int:
    """Train, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, TrainConfig, TrainPlace)
    with shown(not place.json), distributed.processes(config.device):
        try:
            result = train_as(config, place.folder, quiet=place.json, replace_config=place.replace_config).result
        except Interrupted as stopped:
            (result,) = stopped.args
        assert result is not None  # of a run that was trained, not loaded
        if distributed.rank() == 0:
            _tell(result, place.folder, as_json=place.json)
    return 0 if result.status == "finished" else 130


def _tell(result: Result, folder: Path, *, as_json: bool) -> None:
    best = result.best
    if as_json:
        show_json({"status": result.status, "reason": result.reason, "step": result.position.step,
                   "epoch": result.position.epoch, "best": best._asdict(), "folder": str(folder)})  # fmt: skip
        return
    where = f"step {result.position.step}, epoch {result.position.epoch}"
    if result.status == "interrupted":
        sys.stdout.write(f"interrupted at {where}: run the same command to go on\n")
        return
    held_out = (
        "" if best.value is None else f"; best validation loss {best.value:.6f} nats per token at step {best.step}"
    )
    sys.stdout.write(f"finished ({result.reason}) at {where}{held_out}\n{folder}\n")
