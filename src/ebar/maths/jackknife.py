"""Leaving one draw out, in O(n): bounds on log Z, and intervals for anything smooth in the weights."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_rest(log_weights: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows draws"]:
    """log (1 − wᵢ/Σw): what is left of the sum without draw i. In float64, and 0 where every weight is zero.

    The largest weight's remainder is summed anew: when it dominates, subtracting it would leave only rounding.
    Every other weight is at most half of the sum, where log1p is exact.
    """
    log_weights = log_weights.double()
    total = torch.logsumexp(log_weights, -1, keepdim=True)
    shares = torch.exp(log_weights - torch.where(total == -math.inf, 0.0, total))
    largest = log_weights.argmax(-1, keepdim=True)
    others = torch.logsumexp(log_weights.scatter(-1, largest, -math.inf), -1, keepdim=True) - total
    rest = torch.log1p(-shares.scatter(-1, largest, 0.0)).scatter(-1, largest, others)
    return torch.where(total == -math.inf, 0.0, rest)


class LogMeanBounds(NamedTuple):
    """Three estimates of log E[w] from the same draws, their biases −c/n, O(n⁻²) and +c/n, c = Var(w)/(2Z²)."""

    lower: Float[Tensor, "*rows"]  # T = log (1/n)Σw: at most log Z in expectation, for every n (Jensen)
    corrected: Float[Tensor, "*rows"]  # J = nT − (n−1)·mean of the leave-one-out Ts
    upper: Float[Tensor, "*rows"]  # 2J − T: at least log Z in expectation, for n large enough only


def log_fall(
    log_weights: Float[Tensor, "*rows draws"], sizes: Float[Tensor, " draws"] | None = None
) -> Float[Tensor, "*rows draws"]:
    """T minus the T without draw i, T = log Σw/Σs: for batches of unequal sizes s, w being a batch's total."""
    sizes = torch.ones(log_weights.shape[-1]) if sizes is None else sizes
    shares = sizes.double() / sizes.double().sum()
    return torch.log1p(-shares).to(log_weights.device) - log_rest(log_weights)


def log_mean_bounds(
    log_weights: Float[Tensor, "*rows draws"], sizes: Float[Tensor, " draws"] | None = None
) -> LogMeanBounds:
    """T, J and 2J − T.

    They bound log Z in expectation; those of one run can lie on the same side of it, so they are no interval.
    A row with a single positive weight (or a single draw) has no finite upper estimate. Quenouille 1956;
    as bounds on log Z: Deng et al. 2020 (arXiv:2004.11714).
    """
    n = log_weights.shape[-1]
    lower = torch.logsumexp(log_weights.double(), -1) - math.log(n if sizes is None else float(sizes.sum()))
    if n == 1:
        return LogMeanBounds(lower, torch.full_like(lower, math.inf), torch.full_like(lower, math.inf))
    gain = (n - 1) * log_fall(log_weights, sizes).mean(-1)
    silent = lower == -math.inf
    return LogMeanBounds(
        lower,
        torch.where(silent, math.inf, lower + gain),
        torch.where(silent, math.inf, lower + 2 * gain),
    )


def half_width(
    deviations: Float[Tensor, "*rows draws"], level: float = 0.95, *, strata: Int[Tensor, " draws"] | None = None
) -> Float[Tensor, "*rows"]:
    """Half the width of a confidence interval, from dᵢ = θ(without draw i) − θ, up to a constant.

    The quantile is Student's, with the degrees of freedom that `variance` finds. A few large weights make the variance
    itself uncertain, and normal quantiles too short. Infinite where one draw carries everything.
    """
    from scipy.special import stdtrit

    found, freedom = variance(deviations, strata=strata)
    quantile = torch.as_tensor(stdtrit(freedom.cpu().numpy(), (1 + level) / 2)).to(found)
    width = quantile * found.sqrt()
    return torch.where(width.isfinite(), width, math.inf)


def variance(
    deviations: Float[Tensor, "*rows draws"], *, strata: Int[Tensor, " draws"] | None = None
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    """The jackknife's variance of θ, (n−1)/n·Σ(dᵢ − d̄)², and its degrees of freedom.

    The kurtosis κ of the d's leaves 2n/(κ − 1) of them (Satterthwaite 1946). With strata, each has its own mean and
    kurtosis, and variances add up: what lies between strata of settled sizes is no error.
    """
    n = deviations.shape[-1]
    if n == 1:
        nothing = torch.full(deviations.shape[:-1], math.inf, dtype=torch.float64, device=deviations.device)
        return nothing, torch.ones_like(nothing)
    parts = [deviations.double()]
    if strata is not None:
        laws = [(strata == law).to(deviations.device) for law in torch.unique(strata)]
        if min(int(law.sum()) for law in laws) > 1:  # one draw alone has no spread: then they are taken for one law
            parts = [deviations.double()[..., law] for law in laws]
    found, uncertainty = torch.zeros(2, *deviations.shape[:-1], dtype=torch.float64, device=deviations.device)
    for part in parts:
        size = part.shape[-1]
        squares = (part - part.mean(-1, keepdim=True)).square()
        # The deviations were made with n − 1 in the place of the stratum's own size less one.
        own = squares.mean(-1) * (n - 1) ** 2 / n * size**2 / (n * (size - 1))
        flat = own == 0
        kurtosis = torch.where(flat, 3.0, squares.square().mean(-1) / torch.where(flat, 1.0, squares.mean(-1).square()))
        freedom = (2 * size / (kurtosis - 1).clamp(min=1e-12)).nan_to_num(nan=1.0).clamp(1, size - 1)
        found, uncertainty = found + own, uncertainty + own.square() / freedom
    freedom = torch.where(found == 0, float(n - 1), found.square() / torch.where(found == 0, 1.0, uncertainty))
    return found, freedom.nan_to_num(nan=1.0).clamp(1, n - 1)
