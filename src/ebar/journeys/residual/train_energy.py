"""The energy of a residual model, trained by noise-contrastive estimation on draws that are on disk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.journeys.residual.moving import Moving
from ebar.journeys.residual.pool import Pool
from ebar.journeys.residual.settings import Fitting as Fitting  # part of what is called here
from ebar.maths.randomness import folded
from ebar.objectives.nce import Contrasted, Nce
from ebar.store.writing import to_json
from ebar.training import Patience, Plan, Player, Result, Sink, open_run, restore_weights, seeded, train
from ebar.training.batches import OnDevice, taken
from ebar.training.optimisers import AdamW
from ebar.training.schedules import Cosine
from ebar.types import Context, Sequences

Negatives = Pool | Callable[[int], Pool]
"""One pool for all epochs, or each epoch's own."""


class Positives(NamedTuple):
    """Continuations that people wrote, and their prefixes."""

    x: Sequences
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastedBatches:
    """Each real continuation beside `negatives` draws for the same prefix, in an order drawn anew each epoch.

    A pool of more draws than are needed at a time is gone through epoch by epoch: what a network has seen, it can learn
    by heart. Equal numbers of real and drawn for each prefix are the objective's to weigh.
    """

    data: Positives
    pool: Negatives
    negatives: int = 1
    batch_size: int
    seed: int = 0
    shuffle: bool = True

    def __len__(self) -> int:
        return -(-len(self.data.x.lengths) // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Contrasted]:
        pool, rows = self.pool if isinstance(self.pool, Pool) else self.pool(epoch), len(self.data.x.lengths)
        check_pool(pool, self.data, self.negatives)
        order = torch.arange(rows)
        if self.shuffle:
            order = torch.randperm(rows, generator=Generator().manual_seed(folded(self.seed, epoch)))
        which = (epoch * self.negatives + torch.arange(self.negatives)) % pool.draws
        for number in range(start, len(self)):
            some = order[number * self.batch_size : (number + 1) * self.batch_size]
            x, context = taken((self.data.x, self.data.context), some)
            negatives = tuple(pool.fetch(some, draws=draw[None]) for draw in which)
            yield Contrasted(x, context, negatives)


def check_pool(pool: Pool, data: Positives, negatives: int) -> None:
    """The pool is of these prefixes, and large enough."""
    rows = len(data.x.lengths)
    if len(pool) != rows or data.context.rows != rows:
        raise ValueError(f"{rows} continuations need as many prefixes with draws, not {len(pool)}")
    if pool.draws < negatives:
        raise UserError(
            f"Each prefix has {pool.draws} draws, fewer than the {negatives} negatives wanted: draw more of them."
        )


def train_energy(
    folder: Path,
    energy: nn.Module,
    data: tuple[Sequences, Context],
    negatives: Negatives,
    *,
    validation: tuple[tuple[Sequences, Context], Pool],
    fitting: Fitting | None = None,
    seed: int = 0,
    config: str | None = None,
    sinks: Sequence[Sink] = (),
) -> Result:
    """Trains from where the folder stands; afterwards the energy holds the best weights on held-out chunks.

    Only parameters that want gradients move. Held-out figures, at each evaluation: the loss, class accuracy, log Z
    (0 at the optimum: how far it has drifted) and calibration.
    """
    fitting = fitting or Fitting()
    parameters = [parameter for parameter in energy.parameters() if parameter.requires_grad]
    if not parameters:
        raise UserError("No parameter of this energy can be trained.")
    device = str(parameters[0].device)
    generator = seeded(folded(seed, 1), device=device)
    batches = ContrastedBatches(
        data=Positives(*data), pool=negatives, negatives=fitting.negatives, batch_size=fitting.batch_size, seed=seed
    )
    held_out = OnDevice(
        ContrastedBatches(
            data=Positives(*validation[0]), pool=validation[1], negatives=fitting.negatives,
            batch_size=fitting.batch_size, shuffle=False,
        ),
        device,
    )  # fmt: skip
    steps = fitting.epochs * len(batches)
    optimiser = AdamW(learning_rate=fitting.learning_rate, weight_decay=fitting.weight_decay).build(parameters)
    schedule = Cosine(steps=steps, floor=0.1, warmup=round(fitting.warmup * steps))
    moving = Moving(energy)
    players = {"energy": Player(module=moving, optimiser=optimiser, schedule=schedule, clip_norm=fitting.clip)}
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
        restore_weights(best, {"energy": Player(module=moving)})
        energy.eval()
    return result
