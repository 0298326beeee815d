"""The model of a run."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from ebar.config.train import TrainConfig
from ebar.data import DATA
from ebar.errors import UserError
from ebar.journeys.train import SHAPE
from ebar.models.autoregressive import Autoregressive
from ebar.models.construction import assemble
from ebar.training.best import load_best
from ebar.types import Space


def build_model(run: TrainConfig, space: Space, shape: Mapping[str, int] | None = None) -> Autoregressive:
    """Weights are drawn from torch's global state: seed it before. `shape` is what a corpus tells a backbone."""
    model = assemble(
        space, run.backbone.kind, run.backbone.options, run.head.kind, run.head.options, shape=shape,
        sources=getattr(DATA.choose(run.data.kind), "sources", False),
    )  # fmt: skip
    try:
        return model.to(torch.device(run.device), getattr(torch, run.precision))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None


def load_model(run: TrainConfig, folder: Path, space: Space) -> Autoregressive:
    """The best model of a run folder, in evaluation mode."""
    path = folder / SHAPE
    model = build_model(run, space, json.loads(path.read_bytes()) if path.exists() else None)
    load_best(model, folder)
    return model.eval()
