"""Energies that know how large they can be: |E(x, C)| ≤ b for every x and C, so every weight e⁻ᴱ is in [e⁻ᵇ, eᵇ].

What is estimated from such weights can have an interval with a finite-sample guarantee (`maths.certified`), and
rejection from the base needs no other bound.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class BoundedEnergy(Protocol):
    """An energy that can say how large it is at most, in absolute value."""

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


def rounded(bound: float, dtype: torch.dtype) -> float:
    """The largest number that `squashed` can give in this precision: rounding may put it a little above the bound."""
    return max(bound, float(torch.tensor(bound, dtype=dtype)))
