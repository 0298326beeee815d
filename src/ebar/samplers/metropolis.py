"""Metropolis–Hastings: many chains side by side."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.bounds import Count, Natural
from ebar.errors import UserError, choose
from ebar.samplers.accept import Attempts
from ebar.samplers.draw import proposal_for, shares
from ebar.samplers.moves import MOVES, Move, Scene, begin, step
from ebar.types import Context, Distribution, Space, Target, Weighted, context_rows

FEWEST_GROUPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Metropolis:
    """Chains started from the proposal, whose moves leave p invariant; draws tend to p, and say nothing of Z.

    `moves` are taken in turn (a cycle of kernels that leave p invariant does so too): "independent" (x′ ~ q),
    "suffix" (redraw from q after a random cut), "token" (redraw one token). Draws of one chain depend on one another:
    a chain is a group. Fewer than 30 chains are cut into as many segments as make 30 groups, which are independent only
    as far as a segment is long against the autocorrelation time (Schmeiser 1982). That a chain is past its burn-in
    cannot be seen from its draws. Metropolis et al. 1953; Hastings 1970.
    """

    weighted: ClassVar[bool] = False

    moves: tuple[str, ...] = ("suffix",)
    chains: Count = 256
    """For each row of the context; fewer where fewer draws are asked for."""
    burn_in: Natural = 100
    """Moves before the first draw."""
    thin: Count = 10
    """Moves between a chain's draws."""
    batch_size: Count = 4096
    """Chains at a time, over all rows of the context."""

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        parts = self.attempts(target, n, proposal=proposal, context=context, generator=generator)
        for number, part in enumerate(parts):
            chains = len(part.x.lengths) // context_rows(context)
            groups = chain_groups(chains, -(-n // chains), number).to(part.x.lengths.device)
            weights = torch.zeros(context_rows(context), chains, device=groups.device)
            yield Weighted(part.x, weights, groups, estimates_z=False)

    def attempts(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Attempts]:  # fmt: skip
        """The draws of `stream`, one of each chain at a time, with the moves accepted since the last (burn-in too)."""
        scene = Scene(target, proposal_for(target, proposal), context, generator)
        cycle = itertools.cycle(moves_in(self.moves, scene.proposal.space))
        rows = context_rows(context)
        chains = min(self.chains, max(shares(n, context, self.batch_size)))
        walkers = begin(scene, chains)
        for number in range(-(-n // chains)):
            accepted = torch.zeros(rows, dtype=torch.long, device=walkers.log_q.device)
            moves = self.thin if number else max(self.burn_in, 1)
            for move in itertools.islice(cycle, moves):
                walkers, moved = step(walkers, move, scene)
                accepted += moved.view(rows, chains).sum(1)
            lost = int((walkers.log_weight == -math.inf).sum())
            if lost:
                raise UserError(
                    f"After {moves} moves {lost} of {rows * chains} chains have not found a sequence of positive "
                    "probability: raise burn_in, or use a proposal that looks ahead."
                )
            yield Attempts(walkers.x, accepted, torch.full_like(accepted, moves * chains))


def chain_groups(chains: int, steps: int, step: int) -> Int[Tensor, " chains"]:
    """The group of each chain's draw number `step` of `steps`: one for every segment of every chain."""
    segments = min(steps, -(-FEWEST_GROUPS // chains))
    return torch.arange(chains) + chains * (step * segments // steps)


def moves_in(names: tuple[str, ...], space: Space) -> list[Move]:
    """The moves by name, refused where together they cannot reach every sequence of the space."""
    moves = [choose(MOVES, name, "move") for name in names]
    if not moves or (space.end is not None and set(names) == {"token"}):
        raise UserError(
            "Token moves never change a length, so where sequences end they need another move beside them: "
            'for example moves ["token", "suffix"].'
        )
    return moves
