"""`ebar pretrain`: pretrain an XLNet on a text of your own."""

from collections.abc import Sequence

from ebar.build.train import train_as
from ebar.cli.train import TrainPlace, carry_out_training
from ebar.config.pretrain import MANUAL
from ebar.config.reader import read
from ebar.config.train import TrainConfig


def main(words: Sequence[str]) -> int:
    """Pretrain, or go on with a run that was interrupted."""
    config, place = read(words, MANUAL, TrainConfig, TrainPlace)
    return carry_out_training(config, place, train_as)
