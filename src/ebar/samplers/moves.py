"""Moves that leave q(x)·w(x)^power invariant, for many walkers at once; w = P/q, so power 1 is the target P."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.errors import UserError
from ebar.models.scoring import propose
from ebar.models.stepwise import draw_tokens
from ebar.samplers.accept import coin
from ebar.samplers.draw import log_weights
from ebar.samplers.redraw import redraw
from ebar.types import Context, Distribution, Sequences, Stepwise, Target, context_rows


class Walkers(NamedTuple):
    """Where each walker stands, context-major."""

    x: Sequences  # as wide as the space is long
    log_q: Float[Tensor, " walkers"]
    log_weight: Float[Tensor, " walkers"]  # log P − log q

    def select(self, rows: Int[Tensor, " selected"]) -> "Walkers":
        return Walkers(self.x.select(rows), self.log_q[rows], self.log_weight[rows])


class Scene(NamedTuple):
    """What a move takes place in."""

    target: Target
    proposal: Distribution
    context: Context | None
    generator: Generator

    def walkers(self, x: Sequences, log_q: Float[Tensor, " walkers"]) -> Walkers:
        inside = torch.where(x.mask(), x.tokens, 0)  # padding may hold anything
        length = self.proposal.space.after(self.context).length
        wide = Sequences(F.pad(inside, (0, length - x.tokens.shape[1])), x.lengths)
        return Walkers(wide, log_q, log_weights(self.target, self.proposal, wide, log_q, self.context))

    def stepwise(self) -> Stepwise:
        if isinstance(self.proposal, Stepwise):
            return self.proposal
        raise UserError("Token and suffix moves need a proposal that goes token by token: use the independent move.")


# A move returns where it would go, x′, and log [q(x)·K(x→x′)]⁻¹·[q(x′)·K(x′→x)]: the part of the Hastings ratio
# that does not depend on w.
Move = Callable[[Walkers, Scene], tuple[Walkers, Float[Tensor, " walkers"]]]


def begin(scene: Scene, walkers: int) -> Walkers:
    """`walkers` for each row of the context, each at a draw from the proposal."""
    return scene.walkers(*propose(scene.proposal, walkers, scene.context, scene.generator))


def independent(walkers: Walkers, scene: Scene) -> tuple[Walkers, Float[Tensor, " walkers"]]:
    """x′ ~ q: everything cancels but w."""
    there = begin(scene, len(walkers.log_q) // context_rows(scene.context))
    return there, torch.zeros_like(there.log_q)


def suffix(walkers: Walkers, scene: Scene) -> tuple[Walkers, Float[Tensor, " walkers"]]:
    """Cut at a place t uniform over x's own, keep x<t, draw the rest from q(·|x<t).

    Given t, K(x→x′) = q(x′≥t|x<t)/|x|, and x′ has a place t too, so the way back cuts there with probability 1/|x′|:
    q's part cancels and |x|/|x′| is left. t = 0 is a fresh draw, hence irreducible wherever q > 0.
    """
    cut = _uniform_place(walkers.x.lengths, walkers.x, scene.generator)
    free = torch.arange(walkers.x.tokens.shape[1], device=cut.device) >= cut[:, None]
    new = redraw(scene.stepwise(), walkers.x, free, scene.context, keep_length=False, generator=scene.generator)
    log_shorter = torch.log(walkers.x.lengths.double() / new.x.lengths)
    return scene.walkers(new.x, new.log_q), log_shorter.to(new.log_q.dtype)


def token(walkers: Walkers, scene: Scene) -> tuple[Walkers, Float[Tensor, " walkers"]]:
    """Replace one token, at a uniform place, by a draw from q(·|x<t) other than the end; the length stays.

    Both ways choose t alike and condition on the same x<t, so what is left is q(x′)/q(x) · q(xₜ|x<t)/q(x′ₜ|x<t).
    Where a space has an end this move alone never changes a length: alternate it with another.
    """
    x, space = walkers.x, scene.proposal.space
    inner = x.lengths - int(space.end is not None)
    place = _uniform_place(inner.clamp(min=1), x, scene.generator)
    free = torch.arange(x.tokens.shape[1], device=place.device) == place[:, None]
    free = free & (inner > 0)[:, None]  # where there is only the end, the walker stays
    new = redraw(scene.stepwise(), x, free, scene.context, keep_length=True, generator=scene.generator)
    # Tokens further on may be impossible after the new one; outside q's support there is nothing to weigh.
    possible = new.log_q > -math.inf
    tokens = torch.where(possible[:, None], new.x.tokens, x.tokens)
    there = scene.walkers(Sequences(tokens, x.lengths), torch.where(possible, new.log_q, walkers.log_q))
    return there, torch.where(possible, new.log_q - walkers.log_q - new.log_gain, 0.0)


MOVES: dict[str, Move] = {"independent": independent, "suffix": suffix, "token": token}


@torch.no_grad()
def step(
    walkers: Walkers, move: Move, scene: Scene, power: float | Float[Tensor, " walkers"] = 1.0
) -> tuple[Walkers, Bool[Tensor, " walkers"]]:
    """One Metropolis–Hastings step for every walker, and which of them moved."""
    there, log_ratio = move(walkers, scene)
    log_ratio = log_ratio + power * there.log_weight - power * walkers.log_weight
    # A walker that stands where the target is 0 takes any move: it carries no probability that could be misplaced.
    accepted = coin(torch.where(walkers.log_weight == -math.inf, 0.0, log_ratio), scene.generator)
    tokens = torch.where(accepted[:, None], there.x.tokens, walkers.x.tokens)
    lengths = torch.where(accepted, there.x.lengths, walkers.x.lengths)
    log_q = torch.where(accepted, there.log_q, walkers.log_q)
    log_weight = torch.where(accepted, there.log_weight, walkers.log_weight)
    return Walkers(Sequences(tokens, lengths), log_q, log_weight), accepted


def _uniform_place(count: Int[Tensor, " walkers"], x: Sequences, generator: Generator) -> Int[Tensor, " walkers"]:
    """A place below `count`, all equally likely."""
    inside = torch.arange(x.tokens.shape[1], device=count.device) < count[:, None]
    return draw_tokens(torch.where(inside, -torch.log(count.double())[:, None], -math.inf), generator)
