"""Sums and means of numbers known by their logarithms."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def log_mean_exp(log_values: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows"]:
    """log (1/n)·Σᵢ exp(vᵢ) over the last dimension."""
    return torch.logsumexp(log_values, -1) - math.log(log_values.shape[-1])


def exponential(value: float) -> float:
    """e to this power; ∞ where a float has no room for it."""
    return math.inf if value >= 700 else math.exp(value)


def effective_sample_size(log_weights: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows"]:
    """(Σw)² / Σw²: the number of equally weighted draws that estimate as well; 0 where every weight is 0. Kong 1992."""
    squared_sum = 2 * torch.logsumexp(log_weights, -1)
    size = torch.exp(squared_sum - torch.logsumexp(2 * log_weights, -1))
    return torch.where(squared_sum == -math.inf, torch.zeros_like(size), size)


def normalised(log_weights: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows draws"]:
    """Weights that sum to one over the last dimension."""
    return torch.softmax(log_weights, -1)
