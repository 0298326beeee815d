"""The language models of these recipes: the base, one of matched total size, and the locally normalised residual."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ebar.backbones.transformer import Transformer
from ebar.heads.softmax import Softmax
from ebar.models.autoregressive import Autoregressive
from ebar.models.locally_residual import LocallyResidual
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.task import Task, joined
from ebar.training import Batches, seeded
from ebar.training.best import Course, train_best
from ebar.training.optimisers import Adam
from ebar.training.schedules import Cosine
from ebar.types import Space

Trainable = TypeVar("Trainable", Autoregressive, LocallyResidual)


def transformer(cell: Cell, space: Space, layers: int) -> Autoregressive:
    """A language model of whole chunks, its weights drawn from torch's own state."""
    backbone = Transformer(
        space.vocabulary, layers=layers, hidden=cell["hidden"], heads=cell["heads"],
        feedforward=4 * cell["hidden"], dropout=cell["dropout"],
    )  # fmt: skip
    whole = Space(space.vocabulary, cell["prefix"] + cell["continuation"])
    return Autoregressive(backbone, Softmax(backbone.width, space.vocabulary), whole)


def continuing(model: Autoregressive, space: Space) -> Autoregressive:
    """The same model, of continuations: a prefix is then its context."""
    return Autoregressive(model.backbone, model.head, space)


def train_on_chunks(cell: Cell, task: Task, folder: Path, build: Callable[[], Trainable], epochs: int) -> Trainable:
    """Maximum likelihood over prefix and continuation alike; the best held-out weights are kept."""
    generator = seeded(cell["seed"])
    model = build()
    batches = Batches(data=joined(task.train), batch_size=cell["rows"], seed=cell["seed"], drop_last=True)
    validation = Batches(data=joined(task.validation), batch_size=64, shuffle=False)
    course = Course(
        epochs=epochs,
        seed=cell["seed"],
        optimiser=Adam(learning_rate=cell["learning_rate"]),
        schedule=Cosine(steps=epochs * len(batches), warmup=cell["warmup"]),
        checkpoint_every=500,
    )
    objective = MaximumLikelihood(model=model)
    train_best(folder, course, model, objective, batches, (objective, validation), generator=generator)
    return model
