"""The model of a run, and what moves it."""

from pathlib import Path

import torch

from ebar.backbones import BACKBONES
from ebar.build.entry import make
from ebar.config.run import Run
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.models.autoregressive import Autoregressive
from ebar.training.checkpoints import Checkpoints
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.schedules import SCHEDULES
from ebar.training.state import restore_weights
from ebar.types import Space


def build_model(run: Run, space: Space) -> Autoregressive:
    """Weights are drawn from torch's global state: seed it before."""
    backbone = make(BACKBONES, run.backbone, "backbone", vocabulary=space.vocabulary)
    head = make(HEADS, run.head, "head", width=backbone.width, vocabulary=space.vocabulary)
    try:
        return Autoregressive(backbone, head, space).to(torch.device(run.device), getattr(torch, run.dtype))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None


def build_player(run: Run, model: Autoregressive) -> Player:
    """The model with its optimiser; a value that torch refuses is a user's error."""
    try:
        optimiser = make(OPTIMISERS, run.optimiser, "optimiser").build(model.parameters())
    except ValueError as error:
        raise UserError(f"The optimiser {run.optimiser.kind} cannot be made: {error}.") from None
    schedule = make(SCHEDULES, run.schedule, "schedule")
    return Player(module=model, optimiser=optimiser, schedule=schedule, clip_norm=run.training.clip)


def load_model(run: Run, folder: Path, space: Space) -> Autoregressive:
    """The best model of a run folder, in evaluation mode."""
    model = build_model(run, space)
    begin_with(model, folder)
    return model.eval()


def begin_with(model: Autoregressive, folder: Path) -> None:
    """Give a model the best weights of a run folder."""
    checkpoint = Checkpoints(folder / "checkpoints").best()
    if checkpoint is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    restore_weights(checkpoint, {"model": Player(module=model)})
