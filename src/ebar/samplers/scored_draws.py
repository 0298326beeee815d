"""Draws for a tilted model that keep every log-probability computed on the way."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.maths.importance import check_weights
from ebar.models.tilted import Tilted, measured_energy, propose
from ebar.progress import bar
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import LookAhead
from ebar.types import Sequences


class ScoredDraws(NamedTuple):
    """x ~ g with its features, in float64 and on the CPU but for the sequences themselves.

    g is the base q, or a look-ahead proposal of which a tenth of the draws are defensive (see `Guided.walk`).
    """

    x: Sequences
    log_q: Float[Tensor, " draws"]
    log_g: Float[Tensor, " draws"]
    log_weights: Float[Tensor, " draws"]  # log P/g
    values: Float[Tensor, "draws features"]
    defensive: Bool[Tensor, " draws"]

    @property
    def unforced(self) -> Float[Tensor, "draws features"]:
        """Features of the draws that are not defensive: what the proposal alone shows."""
        return self.values[~self.defensive]


@torch.no_grad()
def draw_scored(
    target: Tilted, n: int, *, ahead: Guided | None, features: Features, rows: int, generator: Generator
) -> ScoredDraws:
    """n draws of the look-ahead proposal or, without one, of the target's base; `rows` at a time."""
    parts: list[ScoredDraws] = []
    with bar("drawing", n, "draws") as progress:
        for size in shares(n, None, rows):
            if ahead is None:
                x, log_q = propose(target.base, size, None, generator)
                log_g, defensive = log_q, 0
            else:
                defensive = round(LookAhead().defence * size)
                x, log_g, log_q = ahead.walk(size, defensive=defensive, generator=generator)
            log_weights = log_q.double() - log_g.double() - measured_energy(target.energy, x).double()
            check_weights(log_weights[None])
            parts.append(_scored(x, log_q, log_g, log_weights, features(x), defensive))
            progress.advance(size)
    return ScoredDraws(
        Sequences.join([part.x for part in parts]),
        *(torch.cat(columns) for columns in zip(*(part[1:] for part in parts), strict=True)),
    )


def _scored(
    x: Sequences, log_q: Tensor, log_g: Tensor, log_weights: Tensor, values: Tensor, defensive: int
) -> ScoredDraws:
    """One batch, the first `defensive` draws of which are; its figures in float64 on the CPU."""
    log_q, log_g, log_weights, values = (one.double().cpu() for one in (log_q, log_g, log_weights, values))
    return ScoredDraws(x, log_q, log_g, log_weights, values, torch.arange(len(x.lengths)) < defensive)
