"""The data of a run."""

from pathlib import Path

from ebar.config.train import TrainConfig
from ebar.data.corpus import Corpus, read_data
from ebar.data.kinds import DATA


def build_corpus(run: TrainConfig, folder: Path | None = None) -> Corpus:
    """As configured; a tokeniser that the run folder keeps is read from there."""
    data = DATA[run.data.kind](**run.data.options)
    return read_data(data, seed=run.seed, maximal_length=run.training.maximal_length, folder=folder)
