"""Any run folder, opened as what it is."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ebar.build.corpus import build_corpus
from ebar.build.model import load_model
from ebar.build.residual import load_residual
from ebar.config.residual import ResidualConfig
from ebar.config.train import TrainConfig, read_train
from ebar.errors import UserError
from ebar.journeys.train import Trained
from ebar.models.autoregressive import Autoregressive
from ebar.store.differences import named, renamed
from ebar.training.best import History


def load(folder: Path | str) -> Any:
    """What a journey left in a folder: a `Trained`, a GAM, a residual or a controlled model, with its best weights."""
    folder = Path(folder)
    try:
        tree = yaml.safe_load(renamed((folder / "config.yaml").read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError):
        raise UserError(f"{folder} is no run folder: it has no config.yaml that can be read.") from None
    names = set(tree) if isinstance(tree, dict) else set()
    for kind, opener in OPENERS.items():
        if names and names <= {own.name for own in fields(kind)}:
            return opener(folder)
    if "model" in names and "objective" in names:
        raise UserError(
            f"{folder} holds a network of your own, which only you can make: give it to ebar.train once more, with "
            "folder=, and it has its trained weights."
        )
    raise UserError(
        f"{folder} holds a run of a kind that ebar.load does not know: its configuration has {named(sorted(names))}."
    )


def load_trained(folder: Path) -> Trained[Autoregressive]:
    """The best model of a run folder, and its data."""
    run = read_train(folder)
    data = build_corpus(run, folder)
    model = load_model(run, folder, data.space)
    model.reading = data.reading
    return Trained(model=model, data=data, history=History.read(folder), folder=folder)


# What config.yaml may be, and how a run of it is opened.
OPENERS: dict[type, Callable[[Path], Any]] = {TrainConfig: load_trained, ResidualConfig: load_residual}
