"""The model of a run."""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from ebar.backbones import BACKBONES
from ebar.build.entry import make
from ebar.config.train import TrainConfig
from ebar.errors import UserError, choose
from ebar.heads import HEADS
from ebar.journeys.train import SHAPE
from ebar.models.autoregressive import Autoregressive
from ebar.training.best import load_best
from ebar.types import Space


def build_model(run: TrainConfig, space: Space, shape: Mapping[str, int] | None = None) -> Autoregressive:
    """Weights are drawn from torch's global state: seed it before. `shape` is what a corpus tells a backbone."""
    told = _told(run, shape or {})
    backbone = make(BACKBONES, run.backbone, "backbone", vocabulary=space.vocabulary, **told)
    head = make(HEADS, run.head, "head", width=backbone.width, vocabulary=space.vocabulary)
    try:
        return Autoregressive(backbone, head, space).to(torch.device(run.device), getattr(torch, run.precision))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None


def _told(run: TrainConfig, shape: Mapping[str, int]) -> dict[str, int]:
    """What this backbone wants to know; one that wants what the data has not is of no use for them."""
    wanted = [
        name
        for name in inspect.signature(choose(BACKBONES, run.backbone.kind, "backbone")).parameters
        if name in BACKBONES.given and name != "vocabulary" and name not in run.backbone.options
    ]
    if "image_height" in wanted and "image_height" not in shape:
        raise UserError(f"The backbone {run.backbone.kind} reads images: choose another, or --data.kind images.")
    if "source_vocabulary" in wanted and run.data.kind != "parallel":
        raise UserError(f"The backbone {run.backbone.kind} reads a source: choose another, or --data.kind parallel.")
    if "source_vocabulary" in shape and "source_vocabulary" not in wanted:
        raise UserError(
            f"The backbone {run.backbone.kind} reads sources as beginnings of targets: it needs --data.shared true."
        )
    return {name: shape[name] for name in wanted if name in shape}


def load_model(run: TrainConfig, folder: Path, space: Space) -> Autoregressive:
    """The best model of a run folder, in evaluation mode."""
    path = folder / SHAPE
    model = build_model(run, space, json.loads(path.read_bytes()) if path.exists() else None)
    load_best(model, folder)
    return model.eval()
