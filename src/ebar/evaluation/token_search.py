"""Search for text that a discriminator takes for real, without regard to q, and what goes wrong with it.

The motivation of Deng et al. 2020: a discriminator has seen real text and draws of q and nothing else, so the text of
its lowest energy is neither. Coordinate descent on E finds such text; log q, a term of the joint model, exposes it.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.energies.neural import blocks
from ebar.errors import UserError
from ebar.evaluation.means import plain_mean
from ebar.evaluation.ratings import exact_share
from ebar.models.tilted import measured_energy, score
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Distribution, Energy, Estimate, Sequences, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSearch:
    """Each step tries random tokens in one random place of each text and keeps the one of the lowest energy."""

    steps: int = 400
    candidates: int = 16  # tokens tried beside the one that is there
    batch: int = 512  # texts scored at a time


class Scores(NamedTuple):
    """What the discriminator and what q think of some texts."""

    energy: Float[Tensor, " batch"]
    log_q: Float[Tensor, " batch"]
    lengths: Float[Tensor, " batch"]

    def mean_energy(self, level: float = 0.95) -> Estimate:
        return _mean(self.energy, "energy", level)

    def log_q_per_token(self, level: float = 0.95) -> Estimate:
        """The mean over texts of log q(x|C) / |x|."""
        return _mean(self.log_q / self.lengths, "log q", level)

    def taken_for_real(self, level: float = 0.95) -> Estimate:
        """The share with E < 0, that is σ(−E) > ½."""
        return exact_share(int((self.energy < 0).sum()), len(self.energy), level=level)


class Searched(NamedTuple):
    """Texts before and after the search, and the data's scores beside them."""

    x: Sequences
    start: Scores
    found: Scores
    data: Scores | None
    path: list[float]  # the mean energy after each step, before the first included

    def rows(self) -> list[list[object]]:
        """For a table: which texts, energy, log q per token, share taken for real."""
        named = [("data", self.data), ("start", self.start), ("found", self.found)]
        return [
            [name, scores.mean_energy(), scores.log_q_per_token(), scores.taken_for_real()]
            for name, scores in named
            if scores is not None
        ]


def search(
    energy: Energy[Sequences],
    q: Distribution,
    start: Sequences,
    context: Context | None = None,
    *,
    how: TokenSearch | None = None,
    data: Sequences | None = None,
    generator: Generator,
) -> Searched:
    """From `start`, one text for each row of the context: draws from q, or `random_tokens`. Lengths stay.

    q does not steer the search: it only tells, before and after, how likely the texts are.
    """
    how = how or TokenSearch()
    rows = len(start.lengths)
    if context is not None and context.rows != rows:
        raise UserError(f"{rows} texts to start from need as many contexts, not {context.rows}.")
    with evaluation_mode(energy, q):  # an energy that changes by itself cannot be searched
        before = scores_of(energy, q, start, context, batch=how.batch)
        beside = None if data is None else scores_of(energy, q, data, context, batch=how.batch)
        x, lowest, path = start, before.energy, [float(before.energy.mean())]
        with bar("searching", how.steps, "steps") as progress:
            for _ in range(how.steps):
                x, lowest = _step(energy, q.space, x, lowest, context, how, generator)
                path.append(float(lowest.mean()))
                progress.advance(1)
        return Searched(x, before, scores_of(energy, q, x, context, batch=how.batch), beside, path)


def random_tokens(space: Space, rows: int, *, generator: Generator) -> Sequences:
    """Texts of the greatest length whose tokens are all equally likely, the end token in its last place only."""
    tokens = _any_token(space, (rows, space.length), generator)
    if space.end is not None:
        tokens[:, -1] = space.end
    return Sequences(tokens, torch.full((rows,), space.length, device=tokens.device))


@torch.no_grad()
def scores_of(
    energy: Energy[Sequences], q: Distribution, x: Sequences, context: Context | None = None, *, batch: int = 512
) -> Scores:
    """Row by row with its own context, so many at a time."""
    parts = [(measured_energy(energy, own, given), score(q, own, given)) for own, given in blocks(x, context, batch)]
    return Scores(
        torch.cat([costs for costs, _ in parts]), torch.cat([log_q for _, log_q in parts]), x.lengths.double()
    )


@torch.no_grad()
def _step(
    energy: Energy[Sequences], space: Space, x: Sequences, lowest: Float[Tensor, " batch"], context: Context | None,
    how: TokenSearch, generator: Generator,
) -> tuple[Sequences, Float[Tensor, " batch"]]:  # fmt: skip
    """One place of each text: the best of its candidates, if it is better than what is there."""
    rows, tries = len(x.lengths), how.candidates
    inner = x.lengths - int(space.end is not None)  # the end stays where it is
    chance = torch.rand(rows, dtype=torch.float64, device=generator.device, generator=generator).to(x.lengths.device)
    place = (chance * inner).long().clamp(max=x.tokens.shape[1] - 1)
    drawn = _any_token(space, (rows, tries), generator).to(x.tokens)
    tried = x.repeat(tries)
    here = torch.arange(x.tokens.shape[1], device=x.tokens.device) == place.repeat_interleave(tries)[:, None]
    here &= (inner > 0).repeat_interleave(tries)[:, None]  # a text that is only an end has no place
    tried = Sequences(torch.where(here, drawn.reshape(-1, 1), tried.tokens), tried.lengths)
    costs = torch.cat([measured_energy(energy, *part) for part in blocks(tried, context, how.batch)]).view(rows, tries)
    least, which = costs.min(1)
    better = least < lowest
    best = tried.tokens[torch.arange(rows, device=which.device) * tries + which]
    return Sequences(torch.where(better[:, None], best, x.tokens), x.lengths), torch.where(better, least, lowest)


def _any_token(space: Space, shape: tuple[int, int], generator: Generator) -> Tensor:
    """Every token but the end, equally likely."""
    several = space.vocabulary - int(space.end is not None)
    drawn = torch.randint(several, shape, device=generator.device, generator=generator)
    return drawn if space.end is None else drawn + (drawn >= space.end).long()


def _mean(values: Float[Tensor, " batch"], name: str, level: float) -> Estimate:
    values = values.double().cpu()
    impossible = int((values == -math.inf).sum())
    if impossible:
        warning = f"q gives {impossible:,} of {len(values):,} texts no probability at all"
        return Estimate(-math.inf, -math.inf, -math.inf, float(len(values)), warning, level)
    return plain_mean(values, name=name, level=level)
