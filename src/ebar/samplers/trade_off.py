"""What quasi-rejection sampling costs and what it gives, at every β, from one pool of importance weights."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.importance import NARROW, all_warnings, heavy_tailed, pareto_k
from ebar.maths.jackknife import half_width
from ebar.maths.log_space import effective_sample_size
from ebar.types import Estimate

ENOUGH = 100  # weights above β, for an interval to be trusted
QUANTILE = 1.959964  # of the normal, for intervals of 95 %
LEVEL = 0.97  # the variance, too, is of what was drawn: intervals made at this level cover 95 %
# Of the weights' tail: the index to be below, and by how many standard errors of it. See `trade_off`.
LARGEST_K = {"total variation": (0.5, 1.5), "KL": (0.41, 2.0)}


class Point(NamedTuple):
    """Quasi-rejection at one β; where there are several contexts, the mean over them."""

    log_beta: float
    acceptance_rate: Estimate  # Z_β/β
    total_variation: Estimate  # TV(p_β, p)
    divergence: Estimate  # KL(p ‖ p_β), nats


def trade_off(log_weights: Float[Tensor, "rows draws"], log_betas: Float[Tensor, " betas"]) -> list[Point]:
    """The curve, from the log-weights log P − log q of one pool of draws from q (of `Importance`, say).

    With m = min(w, β), Z = E_q[w] and Z_β = E_q[m]: acceptance is Z_β/β, TV is ½E_q|w/Z − m/Z_β|, and KL(p‖p_β)
    is E_q[(w/Z)·log(w/m)] + log Z_β − log Z. Eikema et al. 2022. Intervals are the jackknife's, on the log scale; the
    upper end is taken around 2J − T (`maths.jackknife`), for what was not drawn makes a divergence look smaller.
    Trap: a divergence rests on the largest weights. It warns where few exceed β, and where their tail is so heavy
    that the interval misses too often. Measured over 2,000 pools of 1,000 weights, log-normal (σ from ½ to 2) and
    Pareto (index 0.3 to 0.9), β at their upper 0.9 to 0.02: an interval covers 92.5 % or more, or 95 % or more of those
    that miss warn (`benchmarks/warning_rates.py`). KL, whose terms grow like w·log w, is the first to.
    """
    if bool((log_weights == -math.inf).all(1).any()):
        raise UserError("Every weight of the pool is 0: draw more, or from a proposal that looks ahead.")
    shift = float(log_weights.max())
    log_w = log_weights.double() - shift  # the curve is that of P/c at β/c, for any c
    size = float(effective_sample_size(log_w).sum())
    worst = float(pareto_k(log_w).nan_to_num(-math.inf).max())
    return [_point(log_w, float(log_beta) - shift, shift, size, worst) for log_beta in log_betas]


def _point(log_w: Float[Tensor, "rows draws"], log_beta: float, shift: float, size: float, k: float) -> Point:
    draws = log_w.shape[1]
    exceeding = int((log_w > log_beta).sum())
    few = None if exceeding >= ENOUGH else f"only {exceeding} weights of the pool exceed β: draw a larger pool"
    tails = {
        name: f"the weights are heavy-tailed (Pareto k̂ {k:.2f}) for this divergence: {NARROW}, draw a larger pool"
        if bool(heavy_tailed(torch.tensor([k]), draws, limit=limit, errors=errors)) and exceeding
        else None
        for name, (limit, errors) in LARGEST_K.items()
    }
    return Point(
        log_beta + shift,
        _estimate(acceptance(log_w, log_beta), 1.0, size, None, 0.95),
        _estimate(
            total_variation_from_target(log_w, log_beta), 1.0, size, all_warnings(few, tails["total variation"]), LEVEL
        ),
        _estimate(kl_from_target(log_w, log_beta), math.inf, size, all_warnings(few, tails["KL"]), LEVEL),
    )


class Jackknifed(NamedTuple):
    """A quantity of each row's pool, and what it would be without each of the draws."""

    value: Float[Tensor, " rows"]
    without: Float[Tensor, "rows draws"]


def acceptance(log_w: Float[Tensor, "rows draws"], log_beta: float) -> Jackknifed:
    """Z_β/β."""
    accepted = (log_w.clamp(max=log_beta) - log_beta).exp()
    total, draws = accepted.sum(1), log_w.shape[1]
    return Jackknifed(total / draws, (total[:, None] - accepted) / max(draws - 1, 1))


def total_variation_from_target(log_w: Float[Tensor, "rows draws"], log_beta: float) -> Jackknifed:
    """Where w exceeds c = β·Z/Z_β, p exceeds p_β; TV is that excess, Σ_{w>c} (w/Σw − β/Σm)."""
    beta = math.exp(log_beta)
    w = log_w.exp()
    m = w.clamp(max=beta)
    sorted_w = w.sort(1).values
    above = torch.nn.functional.pad(sorted_w.flip(1).cumsum(1).flip(1), (0, 1))  # sum from a place on

    def excess(without: Float[Tensor, "rows places"] | None) -> Float[Tensor, "rows places"]:
        left = 0.0 if without is None else without
        total_w = w.sum(1, keepdim=True) - left
        total_m = m.sum(1, keepdim=True) - (0.0 if without is None else without.clamp(max=beta))
        edge = beta * total_w / total_m
        place = torch.searchsorted(sorted_w, edge.contiguous(), right=True)
        beyond = 0.0 if without is None else (without > edge).to(w)
        count = (w.shape[1] - place).to(w) - beyond
        return ((above.gather(1, place) - beyond * left) / total_w - count * beta / total_m).clamp(min=0.0)

    return Jackknifed(excess(None)[:, 0], excess(w))


def kl_from_target(log_w: Float[Tensor, "rows draws"], log_beta: float) -> Jackknifed:
    """KL(p ‖ p_β) = Σ w·log(w/m)/Σw + log Σm − log Σw."""
    w = log_w.exp()
    m = log_w.clamp(max=log_beta).exp()
    terms = torch.where(w > 0, w * (log_w - log_beta).clamp(min=0.0), 0.0)
    sums = [part.sum(1, keepdim=True) for part in (terms, w, m)]
    rests = [total - part for total, part in zip(sums, (terms, w, m), strict=True)]
    value, without = (a / b + c.log() - b.log() for a, b, c in (sums, rests))
    return Jackknifed(value[:, 0].clamp(min=0.0), without.clamp(min=0.0))


def _estimate(found: Jackknifed, largest: float, size: float, warning: str | None, level: float) -> Estimate:
    """The mean over rows. On the scale of the logarithm: these are positive, skew, and often near 0."""
    rows, draws = found.without.shape
    value = float(found.value.mean())
    if value == 0:
        return Estimate(0.0, 0.0, 0.0, size, warning)
    without = value + (found.without - found.value[:, None]) / rows
    fall = math.log(value) - without.log()
    width = float(half_width((fall - fall.mean(1, keepdim=True)).flatten(), level))
    gain = max(0.0, (draws - 1) * float(fall.mean(1).sum()))  # J − T
    if not math.isfinite(width + gain):
        return Estimate(value, 0.0, largest, size, warning)
    return Estimate(value, value * math.exp(-width), min(largest, value * math.exp(width + 2 * gain)), size, warning)


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
