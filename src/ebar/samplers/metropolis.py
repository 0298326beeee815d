"""Metropolis–Hastings: many chains side by side.

Moves leave q(x)·w(x)^power invariant, for many walkers at once; w = P/q, so power 1 is the target P.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.bounds import Amount, Count, Natural
from ebar.errors import UserError, choose
from ebar.maths.rows import count_rows, device_of, either
from ebar.models.drawing import draw_tokens, stepper_of
from ebar.modes import in_evaluation_mode
from ebar.samplers.draw import Move, Setting, Walkers, begin, shares, walkers_at
from ebar.samplers.point_moves import POINT_MOVES, PointMove
from ebar.samplers.rejection import Attempts, CountingSampler, coin
from ebar.types import Context, PointSpace, Sequences, Space, Stepwise, Weighted, X, context_rows, room


def _stepwise(setting: Setting) -> Stepwise:
    if isinstance(setting.proposal, Stepwise):
        return setting.proposal
    raise UserError("Token and suffix moves need a proposal that goes token by token: use the independent move.")


def independent_move(walkers: Walkers[X], setting: Setting[X]) -> tuple[Walkers[X], Float[Tensor, " walkers"]]:
    """x′ ~ q: everything cancels but w."""
    there = begin(setting, len(walkers.log_q) // setting.rows)
    return there, torch.zeros_like(there.log_q)


def suffix(walkers: Walkers, setting: Setting) -> tuple[Walkers, Float[Tensor, " walkers"]]:
    """Cut at a place t uniform over x's own, keep x<t, draw the rest from q(·|x<t).

    Given t, K(x→x′) = q(x′≥t|x<t)/|x|, and x′ has a place t too, so the way back cuts there with probability 1/|x′|:
    q's part cancels and |x|/|x′| is left. t = 0 is a fresh draw, hence irreducible wherever q > 0.
    """
    cut = _uniform_place(walkers.x.lengths, walkers.x, setting.generator)
    free = torch.arange(walkers.x.tokens.shape[1], device=cut.device) >= cut[:, None]
    new = redraw(_stepwise(setting), walkers.x, free, setting.context, keep_length=False, generator=setting.generator)
    log_shorter = torch.log(walkers.x.lengths.double() / new.x.lengths)
    return walkers_at(setting, new.x, new.log_q), log_shorter.to(new.log_q.dtype)


def token(walkers: Walkers, setting: Setting) -> tuple[Walkers, Float[Tensor, " walkers"]]:
    """Replace one token, at a uniform place, by a draw from q(·|x<t) other than the end; the length stays.

    Both ways choose t alike and condition on the same x<t, so what is left is q(x′)/q(x) · q(xₜ|x<t)/q(x′ₜ|x<t).
    Where a space has an end this move alone never changes a length: alternate it with another.
    """
    x, space = walkers.x, setting.proposal.space
    inner = x.lengths - int(space.end is not None)
    place = _uniform_place(inner.clamp(min=1), x, setting.generator)
    free = torch.arange(x.tokens.shape[1], device=place.device) == place[:, None]
    free = free & (inner > 0)[:, None]  # where there is only the end, the walker stays
    new = redraw(_stepwise(setting), x, free, setting.context, keep_length=True, generator=setting.generator)
    # Tokens further on may be impossible after the new one; outside q's support there is nothing to weigh.
    possible = new.log_q > -math.inf
    tokens = torch.where(possible[:, None], new.x.tokens, x.tokens)
    there = walkers_at(setting, Sequences(tokens, x.lengths), torch.where(possible, new.log_q, walkers.log_q))
    return there, torch.where(possible, new.log_q - walkers.log_q - new.log_gain, 0.0)


MOVES: dict[str, Move] = {"independent": independent_move, "suffix": suffix, "token": token}
BY_DEFAULT = ("suffix",)  # in place of which points, that have no suffix, move by the next
POINTS_BY_DEFAULT = ("langevin",)
BIASED = "draws of unadjusted Langevin moves are off by an amount that grows with their step size and is not known"


@torch.no_grad()
def step(
    walkers: Walkers[X], move: Move, setting: Setting[X], power: float | Float[Tensor, " walkers"] = 1.0
) -> tuple[Walkers[X], Bool[Tensor, " walkers"]]:
    """One Metropolis–Hastings step for every walker, and which of them moved."""
    there, log_ratio = move(walkers, setting)
    log_ratio = log_ratio + power * there.log_weight - power * walkers.log_weight
    # A walker that stands where the target is 0 takes any move: it carries no probability that could be misplaced.
    accepted = coin(torch.where(walkers.log_weight == -math.inf, 0.0, log_ratio), setting.generator)
    return either(accepted, there, walkers), accepted


def _uniform_place(count: Int[Tensor, " walkers"], x: Sequences, generator: Generator) -> Int[Tensor, " walkers"]:
    """A place below `count`, all equally likely."""
    inside = torch.arange(x.tokens.shape[1], device=count.device) < count[:, None]
    return draw_tokens(torch.where(inside, -torch.log(count.double())[:, None], -math.inf), generator)


class Redrawn(NamedTuple):
    """x with some places drawn anew."""

    x: Sequences  # as wide as the space is long
    log_q: Float[Tensor, " walkers"]  # of the whole
    log_gain: Float[Tensor, " walkers"]  # Σ over the free places of x: log q(new|·) − log q(old|·)


@torch.no_grad()
@in_evaluation_mode
def redraw(
    model: Stepwise,
    x: Sequences,
    free: Bool[Tensor, "walkers length"],
    context: Context | None,
    *,
    keep_length: bool,
    generator: Generator,
) -> Redrawn:
    """Token by token, from q(·|what stands before) where a place is free, else as in x.

    With `keep_length` a free place draws anything but the end. x is as wide as the space is long; what is free past
    its length has no old token, and no gain.
    """
    space, rows = model.space.after(context), len(x.lengths)
    conditions = context_rows(context)
    logits, state = model.start(conditions, context)
    condition = torch.arange(conditions, device=logits.device).repeat_interleave(rows // conditions)
    logits, state = logits[condition], state.select(condition)
    stepper = stepper_of(model, state)
    tokens, lengths = torch.zeros_like(x.tokens), room(space, context, rows, x.lengths.device)
    log_q, log_gain = torch.zeros_like(logits[:, 0]), torch.zeros_like(logits[:, 0])
    going = torch.arange(rows, device=logits.device)
    for place in range(space.length):
        log_probs = torch.log_softmax(logits, -1)
        new = _chosen(
            log_probs, x.tokens[going, place], free[going, place], space.end if keep_length else None, generator
        )
        tokens[going, place] = new
        step = log_probs.gather(1, new[:, None]).squeeze(1)
        log_q[going] += step
        was = log_probs.gather(1, x.tokens[going, place, None]).squeeze(1)
        log_gain[going] += torch.where(free[going, place] & (place < x.lengths[going]), step - was, 0.0)
        if space.end is not None:
            lengths[going[new == space.end]] = place + 1
        if bool((lengths[going] == place + 1).any()) and place + 1 < space.length:
            goes_on = (lengths[going] > place + 1).nonzero().squeeze(1)
            going, new = going[goes_on], new[goes_on]
            if len(going) == 0:
                break
            stepper.keep(goes_on)
        if place + 1 < space.length:
            logits = stepper.step(new)
    return Redrawn(Sequences(tokens, lengths), log_q, log_gain)


def _chosen(
    log_probs: Float[Tensor, "rows vocabulary"],
    old: Int[Tensor, " rows"],
    free: Bool[Tensor, " rows"],
    barred: int | None,
    generator: Generator,
) -> Int[Tensor, " rows"]:
    """The old token, or a draw from all but the barred one."""
    if not bool(free.any()):
        return old
    options = log_probs[free]
    if barred is not None:
        options[:, barred] = -math.inf
    return old.index_put((free.nonzero().squeeze(1),), draw_tokens(options, generator))


FEWEST_GROUPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Metropolis(CountingSampler):
    """Chains started from the proposal, whose moves leave p invariant; draws tend to p, and say nothing of Z.

    `moves` are taken in turn (a cycle of kernels that leave p invariant does so too): "independent" (x′ ~ q),
    "suffix" (redraw from q after a random cut), "token" (redraw one token); for points "independent", "random_walk",
    "langevin" (by the gradient, adjusted: exact) and "unadjusted_langevin", which is biased, so that estimates from its
    draws warn. Draws of one chain depend on one another: a chain is a group. Fewer than 30 chains are cut into as many
    segments as make 30 groups, which are independent only as far as a segment is long against the autocorrelation time
    (Schmeiser 1982). That a chain is past its burn-in cannot be seen from its draws. Metropolis et al. 1953; Hastings
    1970.
    """

    weighted: ClassVar[bool] = False

    moves: tuple[str, ...] = BY_DEFAULT
    """Of points by default langevin."""
    step_size: Amount | None = None
    """Of random walks and Langevin moves, in the units of x; by default found during burn-in, for all chains alike."""
    chains: Count = 256
    """For each row of the context; fewer where fewer draws are asked for."""
    burn_in: Natural = 100
    """Moves before the first draw."""
    thin: Count = 10
    """Moves between a chain's draws."""
    batch_size: Count = 4096
    """Chains at a time, over all rows of the context."""

    def batches(self, setting: Setting[X], n: int) -> Iterator[Weighted[X]]:
        doubt = BIASED if "unadjusted_langevin" in self.moves else None
        for number, part in enumerate(self.attempted(setting, n)):
            chains = count_rows(part.x) // setting.rows
            groups = chain_groups(chains, -(-n // chains), number).to(device_of(part.x))
            weights = torch.zeros(setting.rows, chains, device=groups.device)
            yield Weighted(part.x, weights, groups, estimates_z=False, doubt=doubt)

    def attempted(self, setting: Setting[X], n: int) -> Iterator[Attempts[X]]:
        """The draws of `stream`, one of each chain at a time, with the moves accepted since the last (burn-in too)."""
        cycle = itertools.cycle(moves_in(self.moves, setting.proposal.space, self.step_size))
        rows = setting.rows
        chains = min(self.chains, max(shares(n, setting.context, self.batch_size)))
        walkers = begin(setting, chains)
        for number in range(-(-n // chains)):
            accepted = torch.zeros(rows, dtype=torch.long, device=walkers.log_q.device)
            moves = self.thin if number else max(self.burn_in, 1)
            for move in itertools.islice(cycle, moves):
                walkers, moved = step(walkers, move, setting)
                accepted += moved.view(rows, chains).sum(1)
                if number == 0 and isinstance(move, PointMove):
                    move.adapt(float(moved.double().mean()))
            lost = int((walkers.log_weight == -math.inf).sum())
            if lost:
                what = "a sequence" if isinstance(walkers.x, Sequences) else "a point"
                raise UserError(
                    f"After {moves} moves {lost} of {rows * chains} chains have not found {what} of positive "
                    "probability: raise burn_in, or use a proposal that looks ahead."
                )
            yield Attempts(walkers.x, accepted, torch.full_like(accepted, moves * chains))


def chain_groups(chains: int, steps: int, step: int) -> Int[Tensor, " chains"]:
    """The group of each chain's draw number `step` of `steps`: one for every segment of every chain."""
    segments = min(steps, -(-FEWEST_GROUPS // chains))
    return torch.arange(chains) + chains * (step * segments // steps)


def moves_in(names: tuple[str, ...], space: Space | PointSpace, step_size: float | None = None) -> list[Move]:
    """The moves by name, refused where together they cannot reach every x of the space."""
    if isinstance(space, PointSpace):
        return [_move_of_points(name, step_size) for name in (POINTS_BY_DEFAULT if names == BY_DEFAULT else names)]
    moves = [choose(MOVES, name, "move") for name in names]
    if not moves or (space.end is not None and set(names) == {"token"}):
        raise UserError(
            "Token moves never change a length, so where sequences end they need another move beside them: "
            'for example moves ["token", "suffix"].'
        )
    return moves


def _move_of_points(name: str, step_size: float | None) -> Move:
    if name in MOVES and name != "independent":
        raise UserError(
            f"The move {name!r} redraws tokens, which points do not have: choose one of "
            f"{', '.join(['independent', *POINT_MOVES])}."
        )
    if name == "independent":
        return independent_move
    choose(POINT_MOVES, name, "move of points")
    return PointMove(name, step_size)


def integrated_autocorrelation_time(values: Float[Tensor, "chains steps"], window: float = 5.0) -> float:
    """τ = 1 + 2·Σₜ ρₜ, the sum cut at the first t ≥ window·τ(t), where noise outweighs what is left. Sokal 1997.

    ρ is pooled over the chains around their common mean, so chains stuck in different places count as correlated.
    Trap: a chain shorter than some 50 τ gives too small a τ.
    """
    steps = values.shape[1]
    centred = values - values.mean()
    size = 2 ** (2 * steps - 1).bit_length()  # zero-padded: the circular correlation is then the plain one
    spectrum = torch.fft.rfft(centred, n=size)
    covariance = torch.fft.irfft(spectrum * spectrum.conj(), n=size)[:, :steps].mean(0)
    if not float(covariance[0]) > 0:
        return 1.0  # a constant: every draw tells all there is
    time = 2 * torch.cumsum(covariance / covariance[0], 0) - 1
    enough = (torch.arange(steps, device=time.device) >= window * time).nonzero()
    return max(1.0, float(time[int(enough[0]) if len(enough) else -1]))
