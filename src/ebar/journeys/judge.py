"""Discriminators that have never seen the energy, and how often text of q and of the joint model fools them.

Deng et al. 2020: "generations from P_φ: false positive rate 17.8 %, accuracy 89.9 %; from P_joint: 31.8 %, 82.9 %".
With as many real as generated texts, accuracy = (true positive rate + 1 − false positive rate) / 2, and both lines give
a true positive rate of 97.6 %: one discriminator has judged both. That is the protocol `same` here, trained against
q's text only. In the harder protocol `own` each system is judged by a discriminator trained against its own text.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.energies.neural import blocks
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.ratings import Compared, compare_verdicts
from ebar.models.tilted import measured_energy
from ebar.objectives.nce import Contrasted, Nce
from ebar.store.fingerprint import fingerprint
from ebar.training.batches import Batches, OnDevice, taken, to_device
from ebar.training.optimisers import AdamW, Constant, OptimiserConfig, Schedule
from ebar.training.randomness import seeded
from ebar.training.train import Course, train_best
from ebar.types import Context, Energy, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """How a fresh discriminator is trained. The epoch with the lowest held-out loss is kept."""

    epochs: int = 5
    batch_size: int = 32
    optimiser: OptimiserConfig = field(default_factory=lambda: AdamW(learning_rate=1e-4))
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = 1.0
    held_out: float = 0.1  # of the half it is trained on, to choose the epoch by
    seed: int = 0


class Fooling(NamedTuple):
    """Two protocols. Rates of a context's texts depend on each other only through the pairs that are compared."""

    same: Compared  # one discriminator, trained against q's text
    own: Compared  # each system's text judged by a discriminator trained against its own kind

    def rows(self) -> list[list[object]]:
        """For a table: protocol, system, false positive rate, accuracy."""
        return [
            [protocol, system, verdict.false_positive_rate, verdict.accuracy]
            for protocol, compared in (("trained against q", self.same), ("trained against each", self.own))
            for system, verdict in (("q", compared.base), ("joint", compared.joint))
        ]


def fooling(
    folder: Path,
    build: Callable[[], nn.Module],
    real: Sequences,
    base: Sequences,
    joint: Sequences,
    context: Context | None = None,
    *,
    judge: Judge | None = None,
    level: float = 0.95,
) -> Fooling:
    """Trains on the first half of the contexts and judges on the second; an interrupted call can be repeated.

    Row i of all three continues row i of the context: data, a draw from q, a draw of the joint model. Give contexts
    that the joint model's own energy was not trained on. Halves are not shuffled: neighbouring chunks of one text on
    both sides would be memorised. `build` makes an energy whose first weights come from torch's global state.
    """
    judge = judge or Judge()
    rows = len(real.lengths)
    if not rows == len(base.lengths) == len(joint.lengths) or (context is not None and context.rows != rows):
        raise UserError("The three kinds of text and their contexts go together row by row: give as many of each.")
    first, second = torch.arange(rows // 2), torch.arange(rows // 2, rows)
    texts = {"real": real, "q": base, "joint": joint}
    own = None if context is None else context.select(second)
    taken_for_real = {}
    for judged_by in ("q", "joint"):
        # Other data or another way of training goes to another folder: nothing is continued that was not begun.
        place = folder / f"against-{judged_by}-{fingerprint(real, texts[judged_by], context, judge)}"
        learnt = taken(Contrasted(real, context, (texts[judged_by],)), first)
        energy = train_judge(place, build, learnt, judge=judge)
        for name, x in texts.items():
            taken_for_real[judged_by, name] = energies(energy, x.select(second), own, batch=judge.batch_size) < 0
    of_base = (taken_for_real["q", "real"], taken_for_real["q", "q"])
    return Fooling(
        *(
            compare_verdicts(of_base, (taken_for_real[by, "real"], taken_for_real[by, "joint"]), level=level)
            for by in ("q", "joint")
        )
    )


@torch.no_grad()
def energies(
    energy: Energy[Sequences], x: Sequences, context: Context | None = None, *, batch: int = 32
) -> Float[Tensor, " batch"]:
    """E of each row, whose own context is the same row's; on the CPU, and so many at a time."""
    device = str(device_of(energy))
    return torch.cat([measured_energy(energy, *to_device(part, device)).cpu() for part in blocks(x, context, batch)])


def train_judge(folder: Path, build: Callable[[], nn.Module], data: Contrasted, *, judge: Judge | None = None) -> Any:
    """A fresh discriminator of real texts and one kind of generated ones; the last of the rows choose its epoch.

    What it says of these texts is worth nothing: judge others.
    """
    judge = judge or Judge()
    rows = len(data.x.lengths)
    kept = rows - max(1, round(judge.held_out * rows))
    if kept < 1:
        raise UserError(f"{2 * rows} contexts cannot be halved and held out from: give more.")
    generator = seeded(judge.seed)
    energy = build()
    device, objective = str(device_of(energy)), Nce(energy=energy)
    learnt, held_out = (taken(data, torch.arange(*ends)) for ends in ((0, kept), (kept, rows)))
    batches = OnDevice(Batches(data=learnt, batch_size=judge.batch_size, seed=judge.seed), device)
    checked = OnDevice(Batches(data=held_out, batch_size=judge.batch_size, shuffle=False), device)
    course = Course(
        epochs=judge.epochs, seed=judge.seed, optimiser=judge.optimiser, schedule=judge.schedule, clip=judge.clip
    )
    train_best(folder, course, energy, objective, batches, (objective, checked), generator=generator, player="energy")
    return energy
