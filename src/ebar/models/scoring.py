"""Asking an energy or a model for numbers, as samplers and estimators do: without dropout, shapes checked."""

from jaxtyping import Float
from torch import Tensor

from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Distribution, Energy, Scored, Sequences


def measured_energy(
    energy: Energy[Sequences], x: Sequences, context: Context | None = None
) -> Float[Tensor, " batch"]:  # fmt: skip
    """E(x, C) in evaluation mode, whatever mode the energy is in."""
    with evaluation_mode(energy):
        return checked_energy(energy, x, context)


def checked_energy(energy: Energy[Sequences], x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
    """E(x, C) in the energy's own mode, as an objective wants it that trains the energy."""
    return of_shape(energy(x, context), (len(x.lengths),), f"The energy of {len(x.lengths)} sequences")


def score(
    model: Distribution | Scored[Sequences], x: Sequences, context: Context | None = None
) -> Float[Tensor, " batch"]:
    """log_prob where there is one, log_score otherwise, in evaluation mode."""
    with evaluation_mode(model):
        if isinstance(model, Distribution):
            return of_shape(model.log_prob(x, context), (len(x.lengths),), f"log_prob of {len(x.lengths)} sequences")
        return of_shape(model.log_score(x, context), (len(x.lengths),), f"log_score of {len(x.lengths)} sequences")
