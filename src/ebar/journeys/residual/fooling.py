"""How often a discriminator that has never seen the energy is fooled by q's text and by the joint model's.

Document 002: "generations from P_φ: false positive rate 17.8 %, accuracy 89.9 %; from P_joint: 31.8 %, 82.9 %". With as
many real as generated texts, accuracy = (true positive rate + 1 − false positive rate) / 2, and both lines give a true
positive rate of 97.6 %: one discriminator has judged both. That is the protocol `same` here, trained against q's text
only. A discriminator that has learnt to know the joint model's text as well is the harder judge: `own`.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ebar.energies.neural import blocks
from ebar.errors import UserError
from ebar.evaluation.ratings import coin_p_value, exact_share
from ebar.journeys.best import Course, train_best
from ebar.models.scoring import measured_energy
from ebar.objectives.nce import Contrasted, Nce
from ebar.training import Batches, seeded
from ebar.training.batches import OnDevice, moved, taken
from ebar.training.optimisers import AdamW, OptimiserConfig
from ebar.training.schedules import Constant, Schedule
from ebar.types import Context, Energy, Estimate, Sequences

FEWEST_CONTEXTS = 30  # to judge: below, a rate says little, however exact its interval


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


class Verdict(NamedTuple):
    """What one discriminator made of one system's text; real is what has an energy below 0."""

    accuracy: Estimate
    false_positive_rate: Estimate  # generated texts taken for real: how often it was fooled
    true_positive_rate: Estimate  # real texts taken for real


class Compared(NamedTuple):
    """Both systems, judged on the same contexts."""

    base: Verdict
    joint: Verdict
    difference: Estimate  # the joint model's false positive rate minus q's
    p_value: float  # McNemar's exact test that there is none


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
    """Trains on the first half of the contexts and judges on the second; killed and called again it goes on.

    Row i of all three continues row i of the context: data, a draw from q, a draw of the joint model. Give contexts
    that the joint model's own energy was not trained on. Halves are not shuffled: neighbouring chunks of one text on
    both sides would be known by heart. `build` makes an energy whose first weights are torch's own randomness.
    """
    judge = judge or Judge()
    rows = len(real.lengths)
    if not rows == len(base.lengths) == len(joint.lengths) or (context is not None and context.rows != rows):
        raise UserError("The three kinds of text and their contexts go together row by row: give as many of each.")
    half = rows // 2
    kept = half - max(1, round(judge.held_out * half))
    if kept < 1:
        raise UserError(f"{rows} contexts cannot be halved and held out from: give more.")
    test = torch.arange(half, rows)
    against_base, against_joint = (
        _trained(folder / f"against-{name}-{_digest(real, fake, context, judge)}", build, judge, kept, half,
                 Contrasted(real, context, (fake,)))
        for name, fake in (("q", base), ("joint", joint))
    )  # fmt: skip
    taken_for_real = {
        (judged_by, name): energies(energy, x.select(test), _rows(context, test), batch=judge.batch_size) < 0
        for judged_by, energy in (("q", against_base), ("joint", against_joint))
        for name, x in (("real", real), ("q", base), ("joint", joint))
    }
    return Fooling(
        *(
            compared(
                (taken_for_real["q", "real"], taken_for_real["q", "q"]),
                (taken_for_real[second, "real"], taken_for_real[second, "joint"]),
                level=level,
            )
            for second in ("q", "joint")
        )
    )


Decisions = tuple[Bool[Tensor, " contexts"], Bool[Tensor, " contexts"]]
"""Whether the real and the generated text of each context were taken for real."""


def compared(base: Decisions, joint: Decisions, *, level: float = 0.95) -> Compared:
    """From decisions on the same contexts."""
    fooled_once, fooled_other = joint[1], base[1]
    difference = paired_difference(fooled_once, fooled_other, level=level)
    only_joint = int((fooled_once & ~fooled_other).sum())
    only_base = int((fooled_other & ~fooled_once).sum())
    p_value = coin_p_value(only_joint, only_base)
    return Compared(verdict(*base, level=level), verdict(*joint, level=level), difference, p_value)


def verdict(real: Bool[Tensor, " contexts"], generated: Bool[Tensor, " contexts"], *, level: float = 0.95) -> Verdict:
    """Rates have exact binomial intervals. The two decisions on one context are no independent trials, so accuracy,
    (1 + P(real taken for real) − P(generated taken for real)) / 2, has that of the paired difference.
    """
    gap = paired_difference(real, generated, level=level)
    value, low, high = ((1 + end) / 2 for end in gap[:3])
    return Verdict(gap._replace(value=value, low=low, high=high), _rate(generated, level), _rate(real, level))


def paired_difference(one: Bool[Tensor, " pairs"], other: Bool[Tensor, " pairs"], *, level: float = 0.95) -> Estimate:
    """P(one) − P(other) of outcomes that come in pairs.

    Wald's interval with half an outcome added to each of the four cells (Agresti & Min 2005): it has a width even
    where no pair disagrees.
    """
    from scipy.special import ndtri

    pairs = len(one)
    more, less = int((one & ~other).sum()), int((other & ~one).sum())
    first, second = (more + 0.5) / (pairs + 2), (less + 0.5) / (pairs + 2)
    centre = first - second
    width = float(ndtri((1 + level) / 2)) * math.sqrt((first + second - centre**2) / (pairs + 2))
    low, high = max(-1.0, centre - width), min(1.0, centre + width)
    return Estimate((more - less) / pairs, low, high, float(pairs), _few(pairs), level)


@torch.no_grad()
def energies(
    energy: Energy[Sequences], x: Sequences, context: Context | None = None, *, batch: int = 32
) -> Float[Tensor, " batch"]:
    """E of each row, whose own context is the same row's; on the CPU, and so many at a time."""
    device = _device(energy)
    return torch.cat([measured_energy(energy, *moved(part, device)).cpu() for part in blocks(x, context, batch)])


def _trained(folder: Path, build: Callable[[], nn.Module], judge: Judge, kept: int, half: int, data: Contrasted) -> Any:
    generator = seeded(judge.seed)
    energy = build()
    device = _device(energy)
    learnt, held_out = (taken(data, torch.arange(*ends)) for ends in ((0, kept), (kept, half)))
    batches = Batches(data=learnt, batch_size=judge.batch_size, seed=judge.seed)
    checked = Batches(data=held_out, batch_size=judge.batch_size, shuffle=False)
    objective = Nce(energy=energy)
    course = Course(
        epochs=judge.epochs, seed=judge.seed, optimiser=judge.optimiser, schedule=judge.schedule, clip=judge.clip
    )
    train_best(
        folder, course, energy, objective, OnDevice(batches, device), (objective, OnDevice(checked, device)),
        generator=generator, player="energy",
    )  # fmt: skip
    return energy


def _digest(real: Sequences, fake: Sequences, context: Context | None, judge: Judge) -> str:
    """Other data or another way of training goes to another folder: nothing is continued that was not begun."""
    digest = hashlib.sha256(repr(judge).encode())
    for x in (real, fake, *(() if context is None else (context.given,))):
        for tensor in (torch.where(x.mask(), x.tokens, 0), x.lengths):
            digest.update(f"{tuple(tensor.shape)};".encode())
            digest.update(tensor.long().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:8]


def _device(energy: object) -> str:
    parameters = energy.parameters() if isinstance(energy, nn.Module) else iter(())
    return str(next((parameter.device for parameter in parameters), "cpu"))


def _rows(context: Context | None, rows: Tensor) -> Context | None:
    return None if context is None else context.select(rows)


def _rate(outcomes: Bool[Tensor, " contexts"], level: float) -> Estimate:
    found = exact_share(int(outcomes.sum()), len(outcomes), level=level)
    return found._replace(warning=_few(len(outcomes)))


def _few(contexts: int) -> str | None:
    return None if contexts >= FEWEST_CONTEXTS else f"{contexts} contexts are few to judge by"
