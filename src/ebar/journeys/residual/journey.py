"""A residual model from a base and text: chunks, the base's draws, an energy warmed up and trained.

A folder holds it, stage by stage, and each stage goes on where it was killed:

    chunks.safetensors       prefixes and continuations
    negatives/               the base's draws for them: train/ (or epoch-0/, epoch-1/ … where refreshed), validation/
    warm-up/                 BiT's masked language modelling
    energy/                  noise-contrastive estimation: a run, whose best checkpoint is the energy
    evaluation/              draws for test prefixes, and their energies
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ebar.build.residual import Base, build_energy, load_base
from ebar.config.residual import Residual, read_residual
from ebar.energies.encoders import Bidirectional
from ebar.energies.kinds import BitEnergy
from ebar.energies.neural import Neural
from ebar.errors import UserError
from ebar.journeys.best import Course, train_best
from ebar.journeys.gam.journey import timed
from ebar.journeys.interrupted import Interrupted
from ebar.journeys.residual.chunks import CHUNKS, Chunks, chunks_of
from ebar.journeys.residual.moving import Moving
from ebar.journeys.residual.pool import Pool, draw_pool
from ebar.journeys.residual.train_energy import Negatives, Positives, train_energy
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted
from ebar.objectives.masked import Masked, MaskedModel
from ebar.progress import shown
from ebar.store.writing import saving
from ebar.training import Batches, Player, restore_weights, seeded
from ebar.training.batches import OnDevice, moved
from ebar.training.checkpoints import Checkpoints
from ebar.training.optimisers import AdamW

# What each stage's randomness is folded with.
WEIGHTS, NEGATIVES, VALIDATION, WARM_UP, TRAINING = range(1, 6)
TRIED = 64  # chunks that an energy must be able to read before any is drawn


@dataclass(frozen=True, kw_only=True)
class Journey:
    """What the stages made."""

    folder: Path
    residual: Residual
    base: Base
    chunks: Chunks
    energy: Neural

    @property
    def joint(self) -> Tilted:
        """P = q·e⁻ᴱ."""
        return Tilted(self.base.q, self.energy)


def travel(residual: Residual, folder: Path) -> Journey:
    """Every stage in turn; those that are done are read back."""
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    base = load_base(residual)
    with timed(folder, "chunks"):
        chunks = chunks_of(residual.data, base, folder)
    seeded(folded(residual.seed, WEIGHTS), device=residual.device)
    energy = build_energy(residual, base)
    _try(energy, chunks.train)
    with timed(folder, "negatives"):
        negatives = _negatives(residual, base, chunks, folder)
        held_out = draw_pool(
            folder / "negatives" / "validation", base.q, chunks.validation.context, residual.fitting.negatives,
            seed=folded(residual.seed, VALIDATION), at_once=residual.negatives.at_once, what="negatives, held out",
        )  # fmt: skip
    if residual.energy.kind == "bit":
        with timed(folder, "warm-up"):
            _warm_up(residual, energy, chunks, folder)
    with timed(folder, "energy"):
        _train(residual, energy, chunks, negatives, held_out, folder)
    return Journey(folder=folder, residual=residual, base=base, chunks=chunks, energy=energy)


def load_journey(folder: Path) -> Journey:
    """A trained residual model from its folder."""
    residual = read_residual(folder / "config.yaml")
    if not (folder / CHUNKS).exists():
        raise UserError(f"{folder} is not trained yet: run `ebar residual train` to its end.")
    base = load_base(residual)
    chunks = chunks_of(residual.data, base, folder)
    energy = build_energy(residual, base)
    checkpoint = Checkpoints(folder / "energy" / "checkpoints").best()
    if checkpoint is None or not (folder / "energy" / "results.json").exists():
        raise UserError(f"{folder} is not trained yet: run `ebar residual train` to its end.")
    restore_weights(checkpoint, {"energy": Player(module=Moving(energy))})
    return Journey(folder=folder, residual=residual, base=base, chunks=chunks, energy=energy.eval())


@torch.no_grad()
def _try(energy: Neural, data: Positives) -> None:
    """What an energy cannot read is told before hours of drawing."""
    rows = torch.arange(min(TRIED, len(data.x.lengths)))
    device = str(energy.head.weight.device)
    energy.eval()(*moved((data.x.select(rows), data.context.select(rows)), device))


def _negatives(residual: Residual, base: Base, chunks: Chunks, folder: Path) -> Negatives:
    """From the base's full softmax, on training prefixes."""
    context, place, told = chunks.train.context, folder / "negatives", residual.negatives
    wanted = residual.fitting.negatives

    def of_epoch(epoch: int) -> Pool:
        seed = folded(residual.seed, NEGATIVES, epoch)
        return draw_pool(
            place / f"epoch-{epoch}", base.q, context, wanted, seed=seed, at_once=told.at_once, what="negatives"
        )

    if told.refresh:
        if told.draws is not None:
            raise UserError("Negatives that are drawn anew are as many as are used: leave out negatives.draws.")
        of_epoch(0)  # with a bar of its own; those of later epochs are drawn while training's is shown

        def quietly(epoch: int) -> Pool:
            with shown(False):
                return of_epoch(epoch)

        return quietly
    draws = wanted if told.draws is None else told.draws
    seed = folded(residual.seed, NEGATIVES)
    return draw_pool(place / "train", base.q, context, draws, seed=seed, at_once=told.at_once, what="negatives")


def _warm_up(residual: Residual, energy: Neural, chunks: Chunks, folder: Path) -> None:
    """The encoder learns the language by filling gaps in it; its head is left as it was."""
    told = BitEnergy(**residual.energy.options)
    if told.warm_up == 0:
        return
    assert isinstance(energy.encoder, Bidirectional)
    seed = folded(residual.seed, WARM_UP)
    generator = seeded(seed, device=residual.device)
    model = MaskedModel(energy.encoder.backbone).to(residual.device)
    objective = Masked(model=model, share=told.masked)
    size = residual.fitting.batch_size
    train_best(
        folder / "warm-up",
        Course(
            epochs=told.warm_up, seed=seed, optimiser=AdamW(learning_rate=told.warm_up_learning_rate),
            clip=residual.fitting.clip, checkpoint_every=residual.fitting.checkpoint_every,
        ),
        model,
        objective,
        _batches(chunks.train, residual, batch_size=size, seed=seed),
        (objective, _batches(chunks.validation, residual, batch_size=size, shuffle=False)),
        generator=generator,
    )  # fmt: skip


def _batches(data: Positives, residual: Residual, **options: Any) -> OnDevice:
    return OnDevice(Batches(data=(data.x, data.context), **options), residual.device)


def _train(
    residual: Residual, energy: Neural, chunks: Chunks, negatives: Negatives, held_out: Pool, folder: Path
) -> None:
    result = train_energy(
        folder / "energy", energy, chunks.train, negatives, validation=(chunks.validation, held_out),
        fitting=residual.fitting, seed=folded(residual.seed, TRAINING),
    )  # fmt: skip
    if result.status == "interrupted":
        raise Interrupted(folder)
