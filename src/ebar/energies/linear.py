"""The log-linear energy of a GAM: E(x) = −λ·φ(x). Parshakova et al. 2019."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.features.feature import Features
from ebar.shapes import of_shape
from ebar.types import Context, Sequences


class Linear(nn.Module):
    """E(x, C) = −Σᵢ λᵢ·φᵢ(x, C), equation 4 with our sign: a positive λ makes its feature likelier.

    λᵢ = −∞ forbids what φᵢ > 0 marks (A.2's P_filtered); +∞ would make Z infinite and is refused.
    """

    def __init__(self, features: Features, coefficients: Float[Tensor, " features"]):
        super().__init__()
        if len(features) != len(coefficients):
            raise ValueError(f"{len(features)} features need as many coefficients, got {len(coefficients)}")
        of_shape(coefficients, (len(features),), "The coefficients of a linear energy")
        if bool((coefficients.isnan() | (coefficients == math.inf)).any()):
            raise ValueError("a coefficient must be a number or −inf")
        if any(f.low < 0 for f, c in zip(features.features, coefficients.tolist(), strict=True) if c == -math.inf):
            raise ValueError("a feature forbidden by −inf must not be negative anywhere")
        self.features = features
        self.coefficients = nn.Parameter(coefficients)

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        values = self.features(x, context).to(self.coefficients.dtype)
        # 0·(−∞) is 0 here: a feature that is absent costs nothing, whatever its coefficient.
        return -torch.where(values == 0, 0.0, values * self.coefficients).sum(1)

    def log_bound(self) -> float:
        """The least upper bound of −E that the features' ranges allow: Σᵢ max(λᵢ·lowᵢ, λᵢ·highᵢ)."""
        total = 0.0
        for feature, coefficient in zip(self.features.features, self.coefficients.tolist(), strict=True):
            total += 0.0 if coefficient == -math.inf else max(coefficient * feature.low, coefficient * feature.high)
        return total
