"""The loop, who learns, and runs that cannot be lost."""

from ebar.training.batches import Batches, Source
from ebar.training.checkpoints import Checkpoint, Checkpoints
from ebar.training.loop import NonFiniteError, Position, Step, fit, measure
from ebar.training.metrics import Console, Sink, tensorboard
from ebar.training.optimisers import OPTIMISERS, SCHEDULES
from ebar.training.players import Player, Players, averaged, evaluating
from ebar.training.randomness import seeded
from ebar.training.run import Run, open_run
from ebar.training.state import restore_weights
from ebar.training.stopping import Best, Patience
from ebar.training.train import Plan, Result, train

__all__ = [
    "OPTIMISERS",
    "SCHEDULES",
    "Batches",
    "Best",
    "Checkpoint",
    "Checkpoints",
    "Console",
    "NonFiniteError",
    "Patience",
    "Plan",
    "Player",
    "Players",
    "Position",
    "Result",
    "Run",
    "Sink",
    "Source",
    "Step",
    "averaged",
    "evaluating",
    "fit",
    "measure",
    "open_run",
    "restore_weights",
    "seeded",
    "tensorboard",
    "train",
]
