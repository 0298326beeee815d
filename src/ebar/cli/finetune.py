"""`ebar finetune`: from a pretrained network to one that does a labelled task."""

from collections.abc import Sequence

from ebar.build.finetune import finetune_as
from ebar.cli.train import TrainPlace, carry_out_training
from ebar.config.finetune import MANUAL, FinetuneConfig
from ebar.config.reader import read


def main(words: Sequence[str]) -> int:
    """Fine-tune, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, FinetuneConfig, TrainPlace)
    return carry_out_training(config, place, finetune_as, monitor=config.monitor, unit="")
