"""The data of a run."""

from pathlib import Path

from ebar.config.train import TrainConfig
from ebar.data import DATA
from ebar.data.corpus import Corpus


def build_corpus(run: TrainConfig, folder: Path | None = None) -> Corpus:
    """As configured; a tokeniser that the run folder keeps is read from there."""
    data = DATA.make(run.data.kind, run.data.options)
    found: Corpus = data.read(seed=run.seed, maximal_length=run.training.maximal_length, folder=folder)
    return found
