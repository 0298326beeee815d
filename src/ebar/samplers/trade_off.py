"""What quasi-rejection sampling costs and what it gives, at every β, from one pool of importance weights."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.log_space import effective_sample_size
from ebar.types import Estimate

ENOUGH = 100  # weights above β, for an interval to be trusted
QUANTILE = 1.959964  # of the normal, for intervals of 95 %


class Point(NamedTuple):
    """Quasi-rejection at one β; where there are several contexts, the mean over them."""

    log_beta: float
    acceptance_rate: Estimate  # Z_β/β
    total_variation: Estimate  # TV(p_β, p)
    divergence: Estimate  # KL(p ‖ p_β), nats


def trade_off(log_weights: Float[Tensor, "rows draws"], log_betas: Float[Tensor, " betas"]) -> list[Point]:
    """The curve, from the log-weights log P − log q of one pool of draws from q (of `Importance`, say).

    With m = min(w, β), Z = E_q[w] and Z_β = E_q[m]: acceptance is Z_β/β, TV is ½E_q|w/Z − m/Z_β|, and KL(p‖p_β)
    is E_q[(w/Z)·log(w/m)] + log Z_β − log Z. Intervals by the delta method. Eikema et al. 2022.
    Trap: a divergence rests on the draws that exceed β; where they are few the point warns.
    """
    if bool((log_weights == -math.inf).all(1).any()):
        raise UserError("Every weight of the pool is 0: draw more, or from a proposal that looks ahead.")
    shift = float(log_weights.max())
    log_w = log_weights.double() - shift  # the curve is that of P/c at β/c, for any c
    size = float(effective_sample_size(log_w).sum())
    return [_point(log_w, float(log_beta), shift, size) for log_beta in log_betas]


def _point(log_w: Float[Tensor, "rows draws"], log_beta: float, shift: float, size: float) -> Point:
    log_m = log_w.clamp(max=log_beta - shift)
    w, m = log_w.exp(), log_m.exp()
    z, z_beta = w.mean(1, keepdim=True), m.mean(1, keepdim=True)
    accepted = (log_m - (log_beta - shift)).exp()
    # For each quantity: its value in every draw, plus what the draw changes through the estimates of Z and Z_β.
    gap = w / z - m / z_beta
    sign = gap.sign()
    through_z = 0.5 * (sign * w).mean(1, keepdim=True) / z * (1 - w / z)
    through_z_beta = 0.5 * (sign * m).mean(1, keepdim=True) / z_beta * (m / z_beta - 1)
    excess = torch.where(w > 0, log_w - log_m, 0.0)
    log_ratio = z_beta.log() - z.log()
    mean_excess = (w / z * excess).mean(1, keepdim=True)
    divergence = w / z * excess + log_ratio
    divergence_change = (m / z_beta - 1) - (w / z - 1) * (1 + mean_excess)
    exceeding = int((log_w > log_beta - shift).sum())
    warning = None if exceeding >= ENOUGH else f"only {exceeding} weights of the pool exceed β: draw a larger pool"
    return Point(
        log_beta,
        _estimate(accepted, 0.0, size, None),
        _estimate(0.5 * gap.abs(), through_z + through_z_beta, size, warning),
        _estimate(divergence, divergence_change, size, warning),
    )


def _estimate(
    values: Float[Tensor, "rows draws"], change: Float[Tensor, "rows draws"] | float, size: float, warning: str | None
) -> Estimate:
    rows, draws = values.shape
    value = float(values.mean())
    variance = (values + change).var(1).sum() / draws / rows**2
    if value == 0:
        return Estimate(0.0, 0.0, 0.0, size, warning)
    # On the scale of the logarithm: these are positive, skew, and often near 0.
    factor = math.exp(QUANTILE * float(variance) ** 0.5 / value)
    return Estimate(value, value / factor, value * factor, size, warning)


def log_beta_for(acceptance_rate: float, log_weights: Float[Tensor, "rows draws"]) -> float:
    """The log β at which the pool's acceptance rate, E_q[min(w/β, 1)] over all rows, is the one wanted.

    The rate falls in β and is a/β + b between two neighbouring weights, so β is found exactly.
    """
    log_w = log_weights.double().flatten().sort(descending=True).values
    possible = float((log_w > -math.inf).double().mean())
    if not 0 < acceptance_rate <= possible:
        raise UserError(
            f"An acceptance rate of {acceptance_rate:g} cannot be had: choose one above 0 and up to {possible:g}."
        )
    count = len(log_w)
    # With the j largest weights at or above β: (Σ of the others)/β + j = rate·count.
    others = torch.logcumsumexp(log_w.flip(0), 0).flip(0)  # others[j] is the sum from j on
    above = torch.arange(count, device=log_w.device, dtype=torch.float64)
    room = acceptance_rate * count - above
    log_beta = torch.where(room > 0, others - torch.log(room.clamp(min=1e-300)), math.inf)
    # The right j is the first whose β is no smaller than the first of the others.
    fits = (log_beta >= log_w - 1e-12).nonzero()
    return float(log_beta[int(fits[0])])
