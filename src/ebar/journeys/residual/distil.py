"""The joint model brought back into a plain language model (the last open question of Deng et al. 2020).

By distillation, as in training-2 of Parshakova et al. 2019: a copy of q is trained on draws of p, chosen among q's by
e⁻ᴱ. Or by distributional policy gradient: the copy is moved towards p by draws that are weighted anew at every step.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ebar.models.construction import Autoregressive
from ebar.models.tilted import Tilted
from ebar.objectives.policy_gradient import PolicyGradient
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.training.batches import Batches, Source
from ebar.training.train import Course, train_best
from ebar.types import Context, Energy, Sequences

Chunks = tuple[Sequences, Context]


def distil_joint_model(
    folder: Path, course: Course, base: Autoregressive, draws: Chunks, held_out: Chunks, *, batch_size: int = 32
) -> Autoregressive:
    """A copy of the base, trained on the joint model's draws; the epoch is chosen by the cost of held-out text.

    The base's own weights are not a choice, so that a student that is worse than the base is seen to be.
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
    """The same network with every dropout probability 0."""
    for part in module.modules():
        if isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0  # type: ignore[assignment]
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module


@dataclass(frozen=True, slots=True)
class _Contexts:
    """Prefixes alone: what policy gradient takes."""

    prefixes: Batches

    def __len__(self) -> int:
        return len(self.prefixes)

    def at(self, epoch: int, start: int) -> Iterator[Context]:
        for given in self.prefixes.at(epoch, start):
            yield Context(given)


def _in_order(chunks: Chunks) -> Source:
    return Batches(data=chunks, batch_size=64, shuffle=False)
