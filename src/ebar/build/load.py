"""A trained run, opened: its best model and its data."""

from pathlib import Path

from ebar.build.corpus import build_corpus
from ebar.build.model import load_model
from ebar.config.train import read_train
from ebar.journeys.train import Trained
from ebar.models.autoregressive import Autoregressive
from ebar.training.best import History


def load_trained(folder: Path) -> Trained[Autoregressive]:
    """The best model of a run folder, and its data."""
    run = read_train(folder)
    data = build_corpus(run, folder)
    model = load_model(run, folder, data.space)
    model.reading = data.reading
    return Trained(model=model, data=data, history=History.read(folder), folder=folder)
