"""Moves of points: a random walk, and Langevin dynamics, which follow the gradient of log P.

The step size s is a length in the units of x. A move never leaves where q > 0, so that a target with mass elsewhere
needs a proposal that has some there too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.models.tilted import score
from ebar.samplers.draw import Setting, Walkers, walkers_at
from ebar.shapes import shown

Moved = tuple[Walkers[Tensor], Float[Tensor, " walkers"]]


def random_walk(walkers: Walkers[Tensor], setting: Setting[Tensor], step_size: float) -> Moved:
    """x′ = x + s·ξ: there and back are equally likely, which leaves q(x′)/q(x). Metropolis et al. 1953."""
    return _arrived(walkers, setting, walkers.x + step_size * _noise(walkers.x, setting), lambda y: 0.0)


def langevin(walkers: Walkers[Tensor], setting: Setting[Tensor], step_size: float) -> Moved:
    """x′ = x + (s²/2)·∇log P(x) + s·ξ, the way back by the gradient at x′. Roberts & Tweedie 1996.

    The gradient is P's, at any power of w: K may be any kernel as long as both ways are counted.
    """
    x, half = walkers.x, step_size**2 / 2
    drift = half * log_score_slope(setting, x)
    there = x + drift + step_size * _noise(x, setting)

    def log_back_and_forth(y: Tensor) -> Tensor:
        back = x - y - half * log_score_slope(setting, y)
        forth = y - x - drift
        return (forth.square() - back.square()).flatten(1).sum(1) / (2 * step_size**2)

    return _arrived(walkers, setting, there, log_back_and_forth)


def unadjusted_langevin(walkers: Walkers[Tensor], setting: Setting[Tensor], step_size: float) -> Moved:
    """The same x′, which every walker takes: its law is off by O(s), and no number of moves mends that.

    Roberts & Tweedie 1996; with s² = η, the dynamics of Welling & Teh 2011. Only where P = 0 a walker stays.
    """
    drift = step_size**2 / 2 * log_score_slope(setting, walkers.x)
    there = walkers.x + drift + step_size * _noise(walkers.x, setting)
    return _arrived(walkers, setting, there, lambda y: math.inf)


def log_score_slope(setting: Setting[Tensor], x: Float[Tensor, "walkers ..."]) -> Float[Tensor, "walkers ..."]:
    """∇log P(x|C) at each x, in evaluation mode."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        total = score(setting.target, x, setting.context).sum()
        if not total.requires_grad:
            raise UserError(
                "Langevin moves follow the gradient of the energy in x, and this one has none: use random_walk."
            )
        (slope,) = torch.autograd.grad(total, x, materialize_grads=True)
    bad = ~slope.isfinite().flatten(1).all(1)
    if bool(bad.any()):
        where = shown(x.detach(), int(bad.nonzero()[0]))
        raise UserError(f"The gradient of log P is not finite at {where}: check the energy there, or use random_walk.")
    return slope


def _noise(x: Float[Tensor, "walkers ..."], setting: Setting[Tensor]) -> Float[Tensor, "walkers ..."]:
    generator = setting.generator
    return torch.randn(x.shape, dtype=x.dtype, device=generator.device, generator=generator).to(x.device)


def _arrived(
    walkers: Walkers[Tensor],
    setting: Setting[Tensor],
    there: Float[Tensor, "walkers ..."],
    log_kernels: Callable[[Tensor], Tensor | float],
) -> Moved:
    """Walkers at x′, or where they were if q is 0 there, and log [q(x′)/q(x)]·[K(x′→x)/K(x→x′)]."""
    log_q = score(setting.proposal, there, setting.context)
    possible = log_q > -math.inf
    y = torch.where(possible.view(-1, *[1] * (there.ndim - 1)), there, walkers.x)
    log_q = torch.where(possible, log_q, walkers.log_q)
    log_ratio = torch.where(possible, log_q - walkers.log_q + log_kernels(y), -math.inf)
    return walkers_at(setting, y, log_q), log_ratio


@dataclass(frozen=True, slots=True)
class Kind:
    """A move of points, and the share of its proposals that should be accepted."""

    propose: Callable[[Walkers[Tensor], Setting[Tensor], float], Moved]
    accepted: float | None  # None: all are, whatever the step size


POINT_MOVES: dict[str, Kind] = {
    "random_walk": Kind(random_walk, 0.35),  # 0.44 is best in one dimension, 0.234 in many
    "langevin": Kind(langevin, 0.574),
    "unadjusted_langevin": Kind(unadjusted_langevin, None),
}


class PointMove:
    """A move with its step size: the one given or, while chains burn in, one that tends to the share to be accepted.

    The first guess is the spread of the walkers. Once it has settled it is kept, since a step size that follows the
    chain's past would change what the chain tends to. Roberts & Rosenthal 2001 for the shares.
    """

    def __init__(self, name: str, step_size: float | None):
        if step_size is not None and not 0 < step_size < math.inf:
            raise UserError(f"The step_size of a move is a length above 0, not {step_size}.")
        self.kind, self.step_size = POINT_MOVES[name], step_size
        self.settled = step_size is not None
        self.tried = 0
        if step_size is None and self.kind.accepted is None:
            raise UserError(
                "Unadjusted Langevin moves are biased the more the longer they are, and nothing tells how much: give "
                "step_size, or use langevin, which is exact and finds its own."
            )

    def __call__(self, walkers: Walkers[Tensor], setting: Setting[Tensor]) -> Moved:
        if self.step_size is None:
            spread = float(walkers.x.std(0, correction=0).mean())
            self.step_size = spread if 0 < spread < math.inf else 1.0
        return self.kind.propose(walkers, setting, self.step_size)

    def adapt(self, accepted: float) -> None:
        """Longer steps where too many were accepted, shorter ones where too few."""
        if self.settled or self.kind.accepted is None or self.step_size is None:
            return
        self.tried += 1
        self.step_size *= math.exp(3 * (accepted - self.kind.accepted) / math.sqrt(self.tried))
