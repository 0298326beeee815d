"""Energies that know how large they can be: |E(x, C)| ≤ b for every x and C, so every weight e⁻ᴱ is in [e⁻ᵇ, eᵇ].

What is estimated from such weights can have an interval with a finite-sample guarantee (`maths.certified`), and
rejection from the base needs no other bound.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class BoundedEnergy(Protocol):
    """An energy with a known bound of its absolute value."""

    def energy_bound(self) -> float | None:
        """b with |E(x, C)| ≤ b for every x and C; None where there is none."""
        ...


def bound_of(energy: object) -> float | None:
    """The bound of an energy, where it knows one."""
    return energy.energy_bound() if isinstance(energy, BoundedEnergy) else None


def check_bound(bound: float | None) -> None:
    """A bound is a positive number, or none is wanted."""
    if bound is not None and not 0 < bound < math.inf:
        raise ValueError(f"the bound of an energy must be a number above 0, not {bound}")


def squashed(raw: Float[Tensor, "*shape"], bound: float | None) -> Float[Tensor, "*shape"]:
    """b·tanh(raw/b): raw near 0, never beyond ±b. Without a bound, raw itself."""
    return raw if bound is None else bound * torch.tanh(raw / bound)


@runtime_checkable
class Normed(Protocol):
    """An encoder that may know which layer's output its hidden vectors are."""

    def last_norm(self) -> nn.LayerNorm | None:
        """None where they are no layer norm's."""
        ...


def norm_bound(norm: nn.LayerNorm, weight: Float[Tensor, "1 width"], bias: Float[Tensor, "1"]) -> float:
    """The largest |w·h̄ + b₀| for a mean h̄ of vectors that a layer norm has made, or for none of them.

    Each is γ⊙ĥ + β with Σĥ = 0 and ‖ĥ‖ ≤ √d, and so is their mean: |w·h̄ + b₀ − (w·β + b₀)| ≤ √d·‖u − mean u‖, u = w⊙γ.
    BiT* comes within a hundredth of it: such energies are bounded by construction, without a tanh. A thousandth is
    added for rounding.
    """
    with torch.no_grad():
        w, constant = weight[0].double(), float(bias.double())
        scale = w if norm.weight is None else w * norm.weight.double()
        centre = constant + (0.0 if norm.bias is None else float(w @ norm.bias.double()))
        reach = float((scale - scale.mean()).norm()) * math.sqrt(len(w))
    return 1.001 * max(abs(centre) + reach, abs(constant))


def rounded(bound: float, dtype: torch.dtype) -> float:
    """The largest number that `squashed` can give in this precision: rounding may put it a little above the bound."""
    return max(bound, float(torch.tensor(bound, dtype=dtype)))
