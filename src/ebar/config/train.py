"""`ebar train`: the data, the model, how it is trained.

Fit an autoregressive model to a language or to your own data. Run it again to go on where it was stopped.

Example:
    ebar train --name motif --data.motif 10001011111000 --data.size 500 --backbone.hidden 64
    ebar train --name mine --data.kind lines --data.train sequences.txt --training.epochs 20
    torchrun --standalone --nproc-per-node 2 -m ebar.cli train --config run.yaml
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ebar.backbones import BACKBONES
from ebar.bounds import Seed
from ebar.config.reader import Chosen, Manual, choice, read_file
from ebar.data import DATA
from ebar.heads import HEADS
from ebar.objectives import OBJECTIVES
from ebar.training.course import Training
from ebar.training.optimisers import OPTIMISERS, SCHEDULES

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What decides every result of a training besides its own options."""

    seed: Seed = 0
    """Of data, weights, order, dropout and draws."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or mps; auto is cuda where there is one."""
    precision: Literal["float32", "float64"] = "float32"
    """Of the weights."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Computed):
    """The data, and the model that is made for them."""

    data: Chosen = choice(DATA, "language")
    backbone: Chosen = choice(BACKBONES, "lstm", suits="data")
    head: Chosen = choice(HEADS, "softmax")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ModelConfig):
    """Everything that decides the result of a training."""

    objective: Chosen = choice(OBJECTIVES, "maximum_likelihood")
    optimiser: Chosen = choice(OPTIMISERS, "adam")
    schedule: Chosen = choice(SCHEDULES, "constant")
    training: Training = field(default_factory=Training)


def read_train(folder: Path) -> TrainConfig:
    """The configuration that a trained run keeps."""
    return read_file(folder / "config.yaml", MANUAL, TrainConfig)
