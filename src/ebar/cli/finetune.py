"""`ebar finetune`: from a pretrained network to one that does a labelled task."""

import sys
from collections.abc import Sequence

from ebar.build.finetune import finetune_as
from ebar.cli.folder import carry_out
from ebar.cli.train import TrainPlace, training_figures
from ebar.config.finetune import MANUAL, FinetuneConfig
from ebar.config.reader import read
from ebar.training import distributed
from ebar.training.train import Result


def main(words: Sequence[str]) -> int:
    """Fine-tune, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, FinetuneConfig, TrainPlace)

    def work() -> Result:
        tuned = finetune_as(config, place.folder, quiet=place.json, replace_config=place.replace_config)
        assert tuned.result is not None  # of a run that was trained, not loaded
        return tuned.result

    def show(result: Result) -> None:
        best = result.best
        held_out = (
            "" if best.value is None else f"; best validation {config.monitor} {best.value:.6f} at step {best.step}"
        )
        where = f"step {result.position.step}, epoch {result.position.epoch}"
        sys.stdout.write(f"finished ({result.reason}) at {where}{held_out}\n{place.folder}\n")

    with distributed.processes(config.device):
        return carry_out(place, work, to_dict=training_figures, show=show)
