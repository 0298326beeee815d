"""The energy of a residual model: noise-contrastive estimation on draws that are on disk, after a warm-up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Generator, nn

from ebar.data.chunks import Chunks, Positives
from ebar.energies.kinds import WarmUp
from ebar.energies.neural import BidirectionalNetwork, MaskedModel
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.residual.negatives import Negatives
from ebar.journeys.residual.settings import Fitting
from ebar.journeys.train import player_of
from ebar.maths.randomness import folded
from ebar.objectives.nce import Contrasted, Masked, Nce
from ebar.store.writing import to_json
from ebar.training.batches import Batches, OnDevice, taken
from ebar.training.metrics import Sink
from ebar.training.optimisers import AdamW, Cosine
from ebar.training.players import Learning
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.stopping import Patience
from ebar.training.train import Course, Plan, Result, train_best, train_to_best

HELD_OUT = 64  # chunks in one held-out batch of the warm-up
EpochNegatives = Negatives | Callable[[int], Negatives]
"""The same draws for all epochs, or a function that gives those of an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastedBatches:
    """Each real continuation with `negatives` draws for the same prefix, in an order drawn anew each epoch.

    Where there are more draws than one epoch uses, each epoch uses the next ones: a network memorises what it has seen.
    The objective weighs unequal numbers of real and drawn continuations.
    """

    data: Positives
    drawn: EpochNegatives
    negatives: int = 1
    batch_size: int
    seed: int = 0
    shuffle: bool = True

    def __len__(self) -> int:
        return -(-len(self.data.x.lengths) // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Contrasted]:
        drawn, rows = self.drawn if isinstance(self.drawn, Negatives) else self.drawn(epoch), len(self.data.x.lengths)
        check_negatives(drawn, self.data, self.negatives)
        order = torch.arange(rows)
        if self.shuffle:
            order = torch.randperm(rows, generator=Generator().manual_seed(folded(self.seed, epoch)))
        which = (epoch * self.negatives + torch.arange(self.negatives)) % drawn.draws
        for number in range(start, len(self)):
            some = order[number * self.batch_size : (number + 1) * self.batch_size]
            x, context = self.data
            negatives = tuple(drawn.fetch(some, draws=draw[None]) for draw in which)
            yield Contrasted(taken(x, some), None if context is None else taken(context, some), negatives)


def check_negatives(drawn: Negatives, data: Positives, negatives: int) -> None:
    """There are draws for each prefix, and enough of them."""
    rows = len(data.x.lengths)
    if len(drawn) != rows or (data.context is not None and data.context.rows != rows):
        raise ValueError(f"{rows} continuations need as many prefixes with draws, not {len(drawn)}")
    if drawn.draws < negatives:
        raise UserError(
            f"Each prefix has {drawn.draws} draws, fewer than the {negatives} negatives wanted: draw more of them."
        )


def train_energy(
    folder: Path,
    energy: nn.Module,
    data: Positives,
    drawn: EpochNegatives,
    *,
    validation: tuple[Positives, Negatives],
    fitting: Fitting | None = None,
    seed: int = 0,
    sinks: Sequence[Sink] = (),
) -> Result:
    """Trains from the folder's last checkpoint; afterwards the energy has the weights of the lowest held-out loss.

    Only parameters that require gradients are trained. Each evaluation on held-out chunks gives the loss, the accuracy
    of classification, log Z (0 at the optimum) and the calibration error.
    """
    fitting = fitting or Fitting()
    if not any(parameter.requires_grad for parameter in energy.parameters()):
        raise UserError("No parameter of this energy can be trained.")
    device = str(device_of(energy))
    batches = ContrastedBatches(
        data=data, drawn=drawn, negatives=fitting.negatives, batch_size=fitting.batch_size, seed=seed
    )
    held_out = OnDevice(replace(batches, data=validation[0], drawn=validation[1], seed=0, shuffle=False), device)
    steps = fitting.epochs * len(batches)
    optimiser = AdamW(learning_rate=fitting.learning_rate, weight_decay=fitting.weight_decay)
    schedule = Cosine(steps=steps, floor=0.1, warmup=round(fitting.warmup * steps))
    player = player_of(Learning(energy), optimiser, schedule, clip=fitting.clip)
    objective = Nce(energy=energy, form=fitting.form)
    plan = Plan(
        epochs=fitting.epochs,
        accumulate=fitting.accumulate,
        validate_every=max(1, len(batches) // fitting.evaluations),
        checkpoint_every=fitting.checkpoint_every,
        patience=Patience(evaluations=fitting.patience),
    )
    generator = seeded(seed, device=device)
    with open_run(folder, config=to_json({**asdict(fitting), "seed": seed}, indent=1).decode(), seed=seed) as run:
        result = train_to_best(
            run, objective, OnDevice(batches, device), {"energy": player}, plan, generator=generator, sinks=sinks,
            validation=lambda: objective.figures(held_out.at(0, 0)),
        )  # fmt: skip
    energy.eval()
    return result


def warm_up(
    folder: Path, encoder: BidirectionalNetwork, chunks: Chunks, how: WarmUp, fitting: Fitting, *, seed: int,
    device: str,
) -> None:  # fmt: skip
    """Trains an energy's encoder on all training chunks by masked language modelling."""
    model = (how.model or MaskedModel(encoder)).to(device)
    assert model.encoder is encoder
    objective, rows = Masked(model=model, share=how.masked), len(chunks.train.x.lengths)
    course = Course(
        epochs=how.epochs, seed=seed, optimiser=AdamW(learning_rate=how.learning_rate),
        clip=fitting.clip, checkpoint_every=fitting.checkpoint_every,
    )  # fmt: skip
    train, held_out = (part.x if part.context is None else tuple(part) for part in (chunks.train, chunks.validation))
    size = fitting.batch_size
    batches = OnDevice(Batches(data=train, batch_size=size, seed=seed, drop_last=rows >= size), device)
    checked = OnDevice(Batches(data=held_out, batch_size=HELD_OUT, shuffle=False), device)
    train_best(folder, course, model, objective, batches, (objective, checked))
