"""The joint model brought back into a plain language model: document 002's last open question, with GAM's answers.

Training-2 of document 000: draws of p, chosen among q's by e⁻ᴱ, are what a copy of q is trained on. Or distributional
policy gradient: the copy is moved towards p by draws that are weighed anew at every step.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.journeys.best import Course, train_best
from ebar.journeys.residual.pool import Pool
from ebar.models.autoregressive import Autoregressive
from ebar.models.scoring import measured_energy
from ebar.models.stepwise import draw_tokens
from ebar.models.tilted import Tilted
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.objectives.policy_gradient import PolicyGradient
from ebar.training import Batches, Source
from ebar.types import Context, Energy, Sequences

Chunks = tuple[Sequences, Context]


@torch.no_grad()
def chosen_draws(energy: Energy[Sequences], pool: Pool, context: Context, *, generator: Generator) -> Sequences:
    """One continuation of each prefix, chosen among the pool's in proportion to e⁻ᴱ."""
    found = []
    for row in range(len(pool)):
        one = torch.tensor([row])
        costs = measured_energy(energy, pool.fetch(one), context.select(one))
        if bool((costs == math.inf).all()):
            raise UserError(f"None of the draws for prefix {row} has any weight under the energy: draw more of them.")
        choice = draw_tokens(torch.log_softmax(-costs[None], 1), generator)
        found.append(pool.fetch(one, draws=choice))
    return Sequences.join(found)


def distil(
    folder: Path, course: Course, base: Autoregressive, draws: Chunks, held_out: Chunks, *, batch_size: int = 32
) -> Autoregressive:
    """A copy of the base, trained on the joint model's draws; real text that is held out says which epoch is best.

    The base's own weights are not among those: a student may be worse than the base, and is then to be seen so.
    """
    student = copy.deepcopy(base).requires_grad_()
    objective = MaximumLikelihood(model=student)
    batches = Batches(data=draws, batch_size=batch_size, seed=course.seed)
    train_best(folder, course, student, objective, batches, (objective, _in_order(held_out)))
    return student


def distil_by_gradient(
    folder: Path, course: Course, base: Autoregressive, energy: Energy[Sequences], prefixes: Context, held_out: Chunks,
    *, draws: int = 16, batch_size: int = 8,
) -> Autoregressive:  # fmt: skip
    """A copy of the base, moved towards P = q·e⁻ᴱ by `draws` of q for each prefix, a Z for each: CDPG.

    It has no dropout meanwhile: π/q would be noise.
    """
    student = without_dropout(copy.deepcopy(base).requires_grad_())
    objective = PolicyGradient(target=Tilted(base, energy), model=student, proposal=base, draws=draws)
    judge = MaximumLikelihood(model=student)
    batches = _Contexts(Batches(data=prefixes.given, batch_size=batch_size, seed=course.seed))
    train_best(folder, course, student, objective, batches, (judge, _in_order(held_out)))
    return student


def without_dropout(module: Autoregressive) -> Autoregressive:
    """The same network; what used to drop does so no longer."""
    for part in module.modules():
        if isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0  # type: ignore[assignment]
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module


@dataclass(frozen=True, slots=True)
class _Contexts:
    """Prefixes alone, as policy gradient wants them."""

    prefixes: Batches

    def __len__(self) -> int:
        return len(self.prefixes)

    def at(self, epoch: int, start: int) -> Iterator[Context]:
        for given in self.prefixes.at(epoch, start):
            yield Context(given)


def _in_order(chunks: Chunks) -> Source:
    return Batches(data=chunks, batch_size=64, shuffle=False)
