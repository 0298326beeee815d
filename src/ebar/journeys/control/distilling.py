"""Distillation: π learns in every place what draws that look ahead would choose there, all tokens at once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size
from ebar.models.stepwise import teacher_forced
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.guided import Guided
from ebar.types import Clock, Loss, Sequences

LARGEST = 30.0  # weight of a draw that looks ahead, in means; above, it counts as this (Ionides 2008)


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation:
    """Each step draws anew, so that nothing is seen twice. With g the proposal that looks ahead and w = P/(g·Z),

        ∇KL(p‖π) = −E_g Σₜ { bₜ·Σᵥ g(v|x₍<t₎)·∇log π(v|x₍<t₎) + (w − bₜ)·∇log π(xₜ|x₍<t₎) }

    for every b that is known before xₜ is: here what the weight has come to, which is w once nothing is open. The
    better g foresees, the less is left to the second term; likelihood of the drawn tokens alone, b = 0, has more
    variance.

    A share of the draws is π's `own`. There b = 1 and the second term is 0: where π has gone and p would not have, it
    learns from g how to come back to what must be (Agarwal et al. 2024, arXiv:2306.13649). Trap: where g is not p, this
    part draws π to g.

    Without look-ahead, draws of the base are learnt from by their weights.
    """

    target: Tilted
    model: Any  # π
    ahead: Guided | None
    log_z: float  # of p, from draws of its own
    own: float
    player: str = "model"

    def losses(self, batch: Float[Tensor, "draws 0"], clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        own = 0 if self.ahead is None else min(round(self.own * len(batch)), len(batch) - 1)
        x, log_weights = self._draw(len(batch) - own, generator)
        if self.ahead is None:
            log_policy = score(self.model, x)
            value = -(log_weights.exp().to(log_policy) * log_policy).mean()
        else:
            value = self._value(self.ahead, x, _cut(log_weights), own, generator)
        size = float(effective_sample_size(log_weights)) if len(log_weights) else 0.0
        yield Loss(value, self.player, {"effective_sample_size": size}, weight=float(len(batch)))

    @torch.no_grad()
    def _draw(self, n: int, generator: Generator) -> tuple[Sequences, Float[Tensor, " draws"]]:
        if self.ahead is None:
            x, log_q = propose(self.target.base, n, None, generator)
            log_g = log_q
        else:
            x, log_g, log_q = self.ahead.walk(n, generator=generator)
        log_weights = log_q.double() - log_g.double() - measured_energy(self.target.energy, x).double()
        check_weights(log_weights[None])
        return x, log_weights - self.log_z

    def _value(
        self, ahead: Guided, x: Sequences, weights: Float[Tensor, " draws"], own: int, generator: Generator
    ) -> Float[Tensor, ""]:  # fmt: skip
        """Per text; of the draws of g it estimates KL(p‖π) − KL(p‖g)."""
        with torch.no_grad():
            if own:
                x = Sequences.join([x, propose(self.model, own, None, generator)[0]])
            log_law, log_so_far = ahead.laws(x)
            so_far = _cut(log_so_far.double() - self.log_z)
            so_far[len(weights) :] = 1.0
            rest = torch.zeros_like(so_far)
            rest[: len(weights)] = weights[:, None] - so_far[: len(weights)]
        tokens = torch.where(x.mask(), x.tokens, 0)
        log_policy = torch.log_softmax(teacher_forced(self.model, tokens), -1)
        gap = torch.where(log_law.isneginf(), 0.0, log_law - log_policy)
        each = so_far.to(gap) * (log_law.exp() * gap).sum(-1)
        each = each + rest.to(gap) * gap.gather(2, tokens[..., None]).squeeze(2)
        return torch.where(x.mask(), each, 0.0).sum(1).mean()


def _cut(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=math.log(LARGEST)).exp()
