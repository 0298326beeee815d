"""Draws for the controlled model, with all that figures are made of, and what each of them is worth."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.estimators.divergences import sampled
from ebar.estimators.moments import weighted_mean
from ebar.estimators.pool import Pool
from ebar.features.feature import Features
from ebar.maths.importance import check_weights, diagnose
from ebar.maths.jackknife import half_width
from ebar.maths.log_space import effective_sample_size
from ebar.models.scoring import measured_energy
from ebar.models.tilted import Tilted
from ebar.progress import bar
from ebar.samplers.draw import propose, shares
from ebar.samplers.guided import Guided
from ebar.types import Estimate, Sequences


class Drawn(NamedTuple):
    """x ~ g, in float64: g is q itself, or q steered by what the energy wants."""

    x: Sequences
    log_q: Float[Tensor, " draws"]
    log_g: Float[Tensor, " draws"]
    log_weights: Float[Tensor, " draws"]  # log P/g
    values: Float[Tensor, "draws features"]  # of whichever features were asked for


@torch.no_grad()
def draw(target: Tilted, n: int, *, ahead: Guided | None, features: Features, rows: int, generator: Generator) -> Drawn:
    """n draws of the target's base or, where one is given, of a proposal that looks ahead from it; `rows` at a time."""
    parts: list[Drawn] = []
    with bar("drawing", n, "draws") as progress:
        for size in shares(n, None, rows):
            if ahead is None:
                x, log_q = propose(target.base, size, None, generator)
                log_g = log_q
            else:
                x, log_g, log_q = ahead.walk(size, generator=generator)
            log_weights = log_q.double() - log_g.double() - measured_energy(target.energy, x).double()
            check_weights(log_weights[None])
            parts.append(Drawn(x, log_q.double(), log_g.double(), log_weights, features(x).double()))
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
    )


def moments(drawn: Drawn, features: Features, *, weighted: bool) -> dict[str, Estimate]:
    """E_p[φ] from weighted draws, or E_g[φ] from the same ones as they are."""
    log_weights = drawn.log_weights if weighted else torch.zeros_like(drawn.log_weights)
    return {
        feature.name: weighted_mean(
            log_weights[None], drawn.values[None, :, column], low=float(feature.low), high=float(feature.high),
            name=feature.name,
        )[0]
        for column, feature in enumerate(features.features)
    }  # fmt: skip


def worth(log_weights: Float[Tensor, " draws"], level: float = 0.95) -> Estimate:
    """Effective samples per draw, (E w)²/E w², as Kong's n draws tend to; the interval by the delta method, in logs.

    A draw moves log R = 2·log E w − log E w² by 2·w/E w − w²/E w² − 1.
    """
    n = len(log_weights)
    size = float(effective_sample_size(log_weights))
    warning = diagnose(log_weights[None])[0]
    if size == 0:
        return Estimate(0.0, 0.0, 1.0, 0.0, warning, level)
    log_mean = torch.logsumexp(log_weights, 0) - math.log(n)
    log_square = torch.logsumexp(2 * log_weights, 0) - math.log(n)
    influence = 2 * (log_weights - log_mean).exp() - (2 * log_weights - log_square).exp() - 1
    width = float(half_width(influence / (n - 1), level)) if n > 1 else math.inf
    ratio = size / n
    return Estimate(ratio, ratio * math.exp(-width), min(1.0, ratio * math.exp(width)), size, warning, level)


def divergence_of(drawn: Drawn, log_model: Float[Tensor, " draws"]) -> Estimate:
    """KL(p‖model) from draws with weights for P: −log Z + E_g[(P/Zg)·log(P/model)], GDC's estimator."""
    pool = Pool(drawn.log_weights[None], (log_model - drawn.log_g)[None], drawn.log_g[None], [None])
    return sampled("kl", pool, normalised=(False, True))[0]


def divergence_from(log_model: Float[Tensor, " draws"], log_q: Float[Tensor, " draws"]) -> Estimate:
    """KL(model‖q) from the model's own draws."""
    pool = Pool(torch.zeros_like(log_model)[None], (log_q - log_model)[None], log_model[None], [None])
    return sampled("kl", pool, normalised=(True, True))[0]
