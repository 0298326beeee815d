"""Distillation: π learns in every place what draws that look ahead would choose there, all tokens at once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.estimators.exact import device_of
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.stepwise import teacher_forced
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.guided import Guided
from ebar.types import Clock, Loss, Sequences

LARGEST = 30.0  # weight of a draw that looks ahead, in means; above, it counts as this (Ionides 2008)


class WeighedTexts(NamedTuple):
    """Draws with log P/g."""

    x: Sequences
    log_weights: Float[Tensor, " draws"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshDraws:
    """Batches of draws, none of which comes twice: an epoch is as many as are made together, from a seed of its own."""

    target: Tilted
    ahead: Guided | None  # None: draws of the base
    batch_size: int
    rows: int
    seed: int

    def __len__(self) -> int:
        return max(1, self.rows // self.batch_size)

    @torch.no_grad()
    def at(self, epoch: int, start: int) -> Iterator[WeighedTexts]:
        generator = Generator(device=device_of(self.target.base)).manual_seed(folded(self.seed, epoch))
        n = len(self) * self.batch_size
        if self.ahead is None:
            x, log_q = propose(self.target.base, n, None, generator)
            log_g = log_q
        else:
            x, log_g, log_q = self.ahead.walk(n, generator=generator)
        log_weights = log_q.double() - log_g.double() - measured_energy(self.target.energy, x).double()
        check_weights(log_weights[None])
        for number in range(start, len(self)):
            rows = slice(number * self.batch_size, (number + 1) * self.batch_size)
            yield WeighedTexts(x.select(rows), log_weights[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation:
    """Learns from draws and their weights. With g the proposal that looks ahead, which made them, and w = P/(g·Z),

        ∇KL(p‖π) = −E_g Σₜ { bₜ·Σᵥ g(v|x₍<t₎)·∇log π(v|x₍<t₎) + (w − bₜ)·∇log π(xₜ|x₍<t₎) }

    for every b that is known before xₜ is: here what the weight has come to, which is w once nothing is open. The
    better g foresees, the less is left to the second term; likelihood of the drawn tokens alone, b = 0, has more
    variance.

    Beside them are draws of π itself, `own` for each of g's. There b = 1 and the second term is 0: where π has gone and
    p would not have, it learns from g how to come back to what must be (Agarwal et al. 2024, arXiv:2306.13649). Trap:
    where g is not p, this part draws π to g.

    Draws of the base, without look-ahead, are learnt from by their weights alone.
    """

    model: Any  # π
    ahead: Guided | None
    log_z: float  # of p, from draws of its own
    own: float
    player: str = "model"

    def losses(self, batch: WeighedTexts, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        log_weights = batch.log_weights - self.log_z
        if self.ahead is None:
            log_policy = score(self.model, batch.x)
            value = -(log_weights.exp().to(log_policy) * log_policy).mean()
        else:
            value = self._value(self.ahead, batch.x, _cut(log_weights), generator)
        metrics = {"effective_sample_size": float(effective_sample_size(log_weights))}
        yield Loss(value, self.player, metrics, weight=float(len(log_weights)))

    def _value(
        self, ahead: Guided, x: Sequences, weights: Float[Tensor, " draws"], generator: Generator
    ) -> Float[Tensor, ""]:
        """Per text; of the draws of g it estimates KL(p‖π) − KL(p‖g)."""
        n = len(weights)
        with torch.no_grad():
            if own := round(self.own * n):
                x = Sequences.join([x, propose(self.model, own, None, generator)[0]])
            log_law, log_so_far = ahead.laws(x)
            so_far = _cut(log_so_far.double() - self.log_z)
            so_far[n:] = 1.0
            rest = torch.zeros_like(so_far)
            rest[:n] = weights[:, None] - so_far[:n]
        tokens = torch.where(x.mask(), x.tokens, 0)
        log_policy = torch.log_softmax(teacher_forced(self.model, tokens), -1)
        gap = torch.where(log_law.isneginf(), 0.0, log_law - log_policy)
        each = so_far.to(gap) * (log_law.exp() * gap).sum(-1)
        each = each + rest.to(gap) * gap.gather(2, tokens[..., None]).squeeze(2)
        return torch.where(x.mask(), each, 0.0).sum(1).mean()


def _cut(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=math.log(LARGEST)).exp()
