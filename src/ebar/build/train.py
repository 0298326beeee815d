"""Training as a configuration says: what `ebar train`, GAM's phases and the recipes have in common.

The data of a run.

The model of a run.

A trained run, opened: its best model and its data.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ebar.config.reader import Manual, described, to_yaml
from ebar.config.train import MANUAL, TrainConfig, read_train
from ebar.data import DATA
from ebar.data.corpus import Corpus
from ebar.devices import device_at_hand, device_named
from ebar.errors import UserError
from ebar.journeys.train import SHAPE, Trained, train
from ebar.models.construction import Autoregressive, assemble
from ebar.objectives import OBJECTIVES
from ebar.training import distributed
from ebar.training.optimisers import OPTIMISERS, SCHEDULES
from ebar.training.randomness import seeded
from ebar.training.train import History, load_best
from ebar.types import Space


def build_corpus(run: TrainConfig, folder: Path | None = None) -> Corpus:
    """As configured; a tokeniser that the run folder keeps is read from there."""
    data = DATA.make(run.data.kind, run.data.options)
    found: Corpus = data.read(seed=run.seed, maximal_length=run.training.maximal_length, folder=folder)
    return found


def build_model(run: TrainConfig, space: Space, shape: Mapping[str, int] | None = None) -> Autoregressive:
    """Weights are drawn from torch's global state: seed it before. `shape` is what a corpus tells a backbone."""
    model = assemble(
        space, run.backbone.kind, run.backbone.options, run.head.kind, run.head.options, shape=shape,
        sources=getattr(DATA.choose(run.data.kind), "sources", False),
    )  # fmt: skip
    return model.to(torch.device(device_at_hand(run.device)), getattr(torch, run.precision))


def load_model(run: TrainConfig, folder: Path, space: Space) -> Autoregressive:
    """The best model of a run folder, in evaluation mode."""
    path = folder / SHAPE
    model = build_model(run, space, json.loads(path.read_bytes()) if path.exists() else None)
    load_best(model, folder)
    return model.eval()


def training_arguments(
    config: Any, folder: Path | None, manual: Manual, *, replace_config: bool = False, quiet: bool = True
) -> dict[str, Any]:
    """What a configuration says alike to every journey that trains."""
    return {
        "training": config.training, "optimiser": config.optimiser.make(OPTIMISERS),
        "schedule": config.schedule.make(SCHEDULES), "seed": config.seed, "folder": folder,
        "description": to_yaml(config) if folder is None else described(folder, manual, config),
        "replace_config": replace_config, "quiet": quiet,
    }  # fmt: skip


TRUNK = "trunk"


def train_as(
    run: TrainConfig, folder: Path | None, *, data: Corpus | None = None, replace_config: bool = False,
    quiet: bool = True, **more: Any,
) -> Trained[Autoregressive]:  # fmt: skip
    """Seeds all random sources, reads the data, builds the model and trains it, in that order; `more` as in `train`."""
    generator = seeded(run.seed, device=device_named(run.device), rank=distributed.rank())
    data = data or build_corpus(run, folder)
    model = build_model(run, data.space, data.shape)
    more |= training_arguments(run, folder, MANUAL, replace_config=replace_config, quiet=quiet)
    objective = run.objective.make(OBJECTIVES, model=model)
    return train(model, data, objective=objective, generator=generator, **more)


def train_branches(
    runs: Mapping[str, TrainConfig], folder: Path, *, epochs: int, data: Corpus | None = None
) -> dict[str, Trained[Autoregressive]]:
    """Runs that differ in their objectives, which are alike in the first epochs: those are trained once.

    They are trained by the objective of the first run, in `trunk`. Each run is then what `train_as` makes of it alone.
    """
    train_as(next(iter(runs.values())), folder / TRUNK, data=data, until=epochs)
    return {name: train_as(run, folder / name, data=data, trunk=folder / TRUNK) for name, run in runs.items()}


def load_trained(folder: Path) -> Trained[Autoregressive]:
    """The best model of a run folder, and its data."""
    run = read_train(folder)
    try:
        data = build_corpus(run, folder)
    except UserError as error:
        raise _left_behind(run, folder) or error from None
    model = load_model(run, folder, data.space)
    model.reading = data.reading
    return Trained(model=model, data=data, history=History.read(folder), folder=folder)


def _left_behind(run: TrainConfig, folder: Path) -> UserError | None:
    """What to say of a run that was moved or pulled to another machine, without its data."""
    named = [run.data.options.get(name) for name in ("train", "train_target", "validation", "test")]
    missing = [path for path in named if path is not None and not Path(path).exists()]
    if not missing:
        return None
    return UserError(
        f"{folder} cannot be opened without its data, and there is no {missing[0]}: put the file there, or write where "
        f"it is into {folder / 'config.yaml'}."
    )
