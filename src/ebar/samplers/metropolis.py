"""Metropolis–Hastings: many chains side by side."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.bounds import Count, Natural
from ebar.errors import UserError, choose
from ebar.samplers.accept import Attempts, CountingSampler
from ebar.samplers.draw import Setting, shares
from ebar.samplers.moves import MOVES, Move, begin, step
from ebar.types import Space, Weighted

FEWEST_GROUPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Metropolis(CountingSampler):
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

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        for number, part in enumerate(self.attempted(setting, n)):
            chains = len(part.x.lengths) // setting.rows
            groups = chain_groups(chains, -(-n // chains), number).to(part.x.lengths.device)
            weights = torch.zeros(setting.rows, chains, device=groups.device)
            yield Weighted(part.x, weights, groups, estimates_z=False)

    def attempted(self, setting: Setting, n: int) -> Iterator[Attempts]:
        """The draws of `stream`, one of each chain at a time, with the moves accepted since the last (burn-in too)."""
        cycle = itertools.cycle(moves_in(self.moves, setting.proposal.space))
        rows = setting.rows
        chains = min(self.chains, max(shares(n, setting.context, self.batch_size)))
        walkers = begin(setting, chains)
        for number in range(-(-n // chains)):
            accepted = torch.zeros(rows, dtype=torch.long, device=walkers.log_q.device)
            moves = self.thin if number else max(self.burn_in, 1)
            for move in itertools.islice(cycle, moves):
                walkers, moved = step(walkers, move, setting)
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


def effective_draws(values: Float[Tensor, "chains steps"]) -> float:
    """Draws divided by the integrated autocorrelation time of the quantity they are to estimate."""
    return values.numel() / integrated_autocorrelation_time(values)
