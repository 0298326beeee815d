"""Masked language modelling before an energy is trained: a bidirectional encoder from scratch learns the language."""

from dataclasses import dataclass
from pathlib import Path

from ebar.data.chunks import Chunks, Positives
from ebar.energies.encoders import Bidirectional
from ebar.energies.neural import Neural
from ebar.journeys.residual.settings import Fitting
from ebar.maths.randomness import folded
from ebar.objectives.masked import Masked, MaskedModel
from ebar.training import Batches
from ebar.training.batches import OnDevice
from ebar.training.best import Course, train_best
from ebar.training.optimisers import AdamW

SEED, HELD_OUT = 8, 64  # what the seed is folded with; chunks in a held-out batch


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How long and how fast."""

    epochs: int = 3
    """Passes over the training chunks; 0 for none: on real text the energy then seldom learns anything."""
    learning_rate: float = 5e-4
    """Of AdamW."""
    masked: float = 0.15
    """Share of the tokens that are masked."""
    model: MaskedModel | None = None
    """The energy's encoder with an output layer; by default one with new weights, from torch's global state."""


def warm_up(
    folder: Path, energy: Neural, chunks: Chunks, how: WarmUp, fitting: Fitting, *, seed: int, device: str
) -> None:
    """Trains the energy's encoder on all training chunks; only the encoder's weights change."""
    assert isinstance(energy.encoder, Bidirectional)
    model = (how.model or MaskedModel(energy.encoder.backbone)).to(device)
    assert model.encoder is energy.encoder.backbone
    objective = Masked(model=model, share=how.masked)
    size = fitting.batch_size
    course = Course(
        epochs=how.epochs, seed=folded(seed, SEED), optimiser=AdamW(learning_rate=how.learning_rate),
        clip=fitting.clip, checkpoint_every=fitting.checkpoint_every,
    )  # fmt: skip
    rows = len(chunks.train.x.lengths)
    batches = Batches(data=_data(chunks.train), batch_size=size, seed=seed, drop_last=rows >= size)
    held_out = Batches(data=_data(chunks.validation), batch_size=HELD_OUT, shuffle=False)
    train_best(folder, course, model, objective, OnDevice(batches, device), (objective, OnDevice(held_out, device)))


def _data(part: Positives) -> object:
    return part.x if part.context is None else tuple(part)
