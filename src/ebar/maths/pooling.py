"""Means over the places of texts."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mean_pooled(
    hidden: Float[Tensor, "rows places width"], counts: Bool[Tensor, "rows places"]
) -> Float[Tensor, "rows width"]:
    """The mean over the places that count; 0 where none does."""
    weights = counts.to(hidden.dtype) / counts.sum(1, keepdim=True).clamp(min=1)
    return (weights[:, None] @ torch.where(counts[:, :, None], hidden, 0.0)).squeeze(1)
