"""Divergences between two distributions, as sums of f(a, b) over a reference: KL, reverse KL, TV and JS.

a = p(x)/r(x) and b = q(x)/r(x) for a reference r, so D = E_r[f(a, b)] = Σₓ f(p(x), q(x)) when r is counting.
Each f is homogeneous of degree one, so a·∂f/∂a + b·∂f/∂b = f: the two slopes are all an interval needs.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Terms(NamedTuple):
    """f(a, b), and how it changes when a alone, or b alone, is rescaled."""

    value: Float[Tensor, "*shape"]
    slope_a: Float[Tensor, "*shape"]  # a·∂f/∂a
    slope_b: Float[Tensor, "*shape"]  # b·∂f/∂b


def kl_terms(log_a: Float[Tensor, "*shape"], log_b: Float[Tensor, "*shape"]) -> Terms:
    """a·log(a/b): +∞ where b alone is zero, 0 where a is."""
    inside = log_a > -math.inf
    a = log_a.exp()
    # The masked branch must not put NaN (0·∞) into the value or into its gradient.
    log_ratio = torch.where(inside, log_a, 0.0) - torch.where(inside, log_b, 0.0)
    value = torch.where(inside, a * log_ratio, 0.0)
    return Terms(value, value + a, -a)


def reverse_kl_terms(log_a: Float[Tensor, "*shape"], log_b: Float[Tensor, "*shape"]) -> Terms:
    """b·log(b/a)."""
    value, slope_b, slope_a = kl_terms(log_b, log_a)
    return Terms(value, slope_a, slope_b)


def total_variation_terms(log_a: Float[Tensor, "*shape"], log_b: Float[Tensor, "*shape"]) -> Terms:
    """½·|a − b|."""
    a, b = log_a.exp(), log_b.exp()
    sign = torch.sign(a - b).detach()
    return Terms(sign * (a - b) / 2, sign * a / 2, -sign * b / 2)


def jensen_shannon_terms(log_a: Float[Tensor, "*shape"], log_b: Float[Tensor, "*shape"]) -> Terms:
    """½·(a·log(a/m) + b·log(b/m)), m = (a + b)/2: between 0 and log 2."""
    inside = (log_a > -math.inf) | (log_b > -math.inf)
    safe_a, safe_b = torch.where(inside, log_a, 0.0), torch.where(inside, log_b, 0.0)
    log_mean = torch.logaddexp(safe_a, safe_b) - math.log(2)
    slope_a = torch.where(inside, kl_terms(safe_a, log_mean).value / 2, 0.0)
    slope_b = torch.where(inside, kl_terms(safe_b, log_mean).value / 2, 0.0)
    return Terms(slope_a + slope_b, slope_a, slope_b)


DivergenceTerms = Callable[[Tensor, Tensor], Terms]
DIVERGENCES: dict[str, DivergenceTerms] = {
    "kl": kl_terms,
    "reverse_kl": reverse_kl_terms,
    "total_variation": total_variation_terms,
    "jensen_shannon": jensen_shannon_terms,
}


def kl(log_p: Float[Tensor, "*rows outcomes"], log_q: Float[Tensor, "*rows outcomes"]) -> Float[Tensor, "*rows"]:
    """KL(p‖q) = Σ p·log(p/q) over tables of log-probabilities."""
    return kl_terms(log_p, log_q).value.sum(-1)


def total_variation(
    log_p: Float[Tensor, "*rows outcomes"], log_q: Float[Tensor, "*rows outcomes"]
) -> Float[Tensor, "*rows"]:
    """½·Σ|p − q| over tables of log-probabilities."""
    return total_variation_terms(log_p, log_q).value.sum(-1)


def entropy(log_p: Float[Tensor, "*rows outcomes"]) -> Float[Tensor, "*rows"]:
    """−Σ p·log p over a table of log-probabilities."""
    return -kl_terms(log_p, torch.zeros_like(log_p)).value.sum(-1)
