"""The energy of a residual model, trained by noise-contrastive estimation on draws that are on disk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Generator, nn

from ebar.data.chunks import Positives
from ebar.errors import UserError
from ebar.journeys.residual.negatives import Negatives
from ebar.journeys.residual.settings import Fitting
from ebar.maths.randomness import folded
from ebar.objectives.nce import Contrasted, Nce
from ebar.store.writing import to_json
from ebar.training import Patience, Plan, Player, Result, Sink, open_run, restore_weights, seeded, train
from ebar.training.batches import OnDevice, taken
from ebar.training.learning import Learning
from ebar.training.optimisers import AdamW
from ebar.training.schedules import Cosine

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
    config: str | None = None,
    sinks: Sequence[Sink] = (),
) -> Result:
    """Trains from the folder's last checkpoint; afterwards the energy has the weights of the lowest held-out loss.

    Only parameters that require gradients are trained. Each evaluation on held-out chunks gives the loss, the accuracy
    of classification, log Z (0 at the optimum) and the calibration error.
    """
    fitting = fitting or Fitting()
    parameters = [parameter for parameter in energy.parameters() if parameter.requires_grad]
    if not parameters:
        raise UserError("No parameter of this energy can be trained.")
    device = str(parameters[0].device)
    generator = seeded(folded(seed, 1), device=device)
    batches = ContrastedBatches(
        data=data, drawn=drawn, negatives=fitting.negatives, batch_size=fitting.batch_size, seed=seed
    )
    held_out = OnDevice(
        ContrastedBatches(
            data=validation[0], drawn=validation[1], negatives=fitting.negatives,
            batch_size=fitting.batch_size, shuffle=False,
        ),
        device,
    )  # fmt: skip
    steps = fitting.epochs * len(batches)
    optimiser = AdamW(learning_rate=fitting.learning_rate, weight_decay=fitting.weight_decay).build(parameters)
    schedule = Cosine(steps=steps, floor=0.1, warmup=round(fitting.warmup * steps))
    learning = Learning(energy)
    players = {"energy": Player(module=learning, optimiser=optimiser, schedule=schedule, clip_norm=fitting.clip)}
    objective = Nce(energy=energy, form=fitting.form)
    plan = Plan(
        epochs=fitting.epochs,
        accumulate=fitting.accumulate,
        validate_every=max(1, len(batches) // fitting.evaluations),
        checkpoint_every=fitting.checkpoint_every,
        patience=Patience(evaluations=fitting.patience),
    )
    told = config if config is not None else to_json({**asdict(fitting), "seed": seed}, indent=1).decode()
    with open_run(folder, config=told, seed=seed) as run:
        result = train(
            run, objective, OnDevice(batches, device), players, plan, generator=generator, sinks=sinks,
            validation=lambda: objective.figures(held_out.at(0, 0)),
        )  # fmt: skip
        best = run.checkpoints.best()
    if result.status == "finished" and best is not None:
        restore_weights(best, {"energy": Player(module=learning)})
        energy.eval()
    return result
