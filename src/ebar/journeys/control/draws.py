"""Draws for the controlled model, with all that figures are made of."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar.estimators.comparison import Comparison as Pool
from ebar.estimators.divergences import sampled
from ebar.estimators.moments import weighted_mean
from ebar.features.feature import Features
from ebar.maths.importance import check_weights
from ebar.models.scoring import measured_energy
from ebar.models.tilted import Tilted
from ebar.progress import bar
from ebar.samplers.draw import propose, shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import LookAhead
from ebar.types import Estimate, Sequences


class Drawn(NamedTuple):
    """x ~ g, in float64: g is q itself, or q steered by what the energy wants, mixed with a tenth of its defence."""

    x: Sequences
    log_q: Float[Tensor, " draws"]
    log_g: Float[Tensor, " draws"]
    log_weights: Float[Tensor, " draws"]  # log P/g
    values: Float[Tensor, "draws features"]  # of whichever features were asked for
    defensive: Bool[Tensor, " draws"] | None = None  # draws of the defence beside a proposal that looks ahead


@torch.no_grad()
def draw(target: Tilted, n: int, *, ahead: Guided | None, features: Features, rows: int, generator: Generator) -> Drawn:
    """n draws of the target's base or, where one is given, of a proposal that looks ahead from it; `rows` at a time."""
    parts: list[Drawn] = []
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
            parts.append(
                Drawn(
                    x, log_q.double(), log_g.double(), log_weights, features(x).double(), torch.arange(size) < defensive
                )
            )
            progress.advance(size)
    return joined(parts)


def joined(parts: list[Drawn]) -> Drawn:
    """All draws one after the other; their figures, not the sequences, where numbers are added up."""
    return Drawn(
        Sequences.join([part.x for part in parts]),
        torch.cat([part.log_q for part in parts]).double().cpu(),
        torch.cat([part.log_g for part in parts]).double().cpu(),
        torch.cat([part.log_weights for part in parts]).double().cpu(),
        torch.cat([part.values for part in parts]).double().cpu(),
        torch.cat([_defensive(part) for part in parts]),
    )


def _defensive(drawn: Drawn) -> Bool[Tensor, " draws"]:
    return torch.zeros(len(drawn.log_q), dtype=torch.bool) if drawn.defensive is None else drawn.defensive


def moments(drawn: Drawn, features: Features, *, weighted: bool) -> dict[str, Estimate]:
    """E_p[φ] from weighted draws, or the mean of φ over those that were steered, as they are."""
    values = drawn.values if weighted else drawn.values[~_defensive(drawn)]
    log_weights = drawn.log_weights if weighted else torch.zeros(len(values), dtype=torch.float64)
    return {
        feature.name: weighted_mean(
            log_weights[None], values[None, :, column], low=float(feature.low), high=float(feature.high),
            name=feature.name,
        )[0]
        for column, feature in enumerate(features.features)
    }  # fmt: skip


def divergence_of(drawn: Drawn, log_model: Float[Tensor, " draws"]) -> Estimate:
    """KL(p‖model) from draws with weights for P: −log Z + E_g[(P/Zg)·log(P/model)], GDC's estimator."""
    pool = Pool(drawn.log_weights[None], (log_model - drawn.log_g)[None], drawn.log_g[None], [None])
    return sampled("kl", pool, normalised=(False, True))[0]


def divergence_from(log_model: Float[Tensor, " draws"], log_q: Float[Tensor, " draws"]) -> Estimate:
    """KL(model‖q) from the model's own draws."""
    pool = Pool(torch.zeros_like(log_model)[None], (log_q - log_model)[None], log_model[None], [None])
    return sampled("kl", pool, normalised=(True, True))[0]
