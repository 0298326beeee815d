"""Laws of energies."""

from typing import Any

import torch
from torch import nn

from ebar.models.tilted import measured_energy
from ebar.testing.features import random_sequences, repadded
from ebar.testing.laws import require, require_close
from ebar.types import Context, Energy, Sequences, Space

ROWS = 12


def check_energy(
    energy: Energy[Sequences], space: Space, context: Context | None = None, *, tolerance: float | None = None
) -> None:
    """One number for each sequence, never NaN; padding and other rows change nothing; dropout off when it is measured.

    A network that learns has a gradient. With a context, `space` is that of what follows it, and its rows divide 12.
    """
    x = random_sequences(space, ROWS)
    with torch.no_grad():
        costs = measured_energy(energy, x, context)
        require(not costs.isnan().any(), "an energy is never NaN")
        for other in repadded(x, space):
            law = "padding changes nothing"
            require_close(measured_energy(energy, other, context), costs, law, tolerance=tolerance)
        rows = 1 if context is None else context.rows
        each = ROWS // rows
        for row in range(0, ROWS, 5):
            one = torch.tensor([row])
            given = None if context is None else context.select(one // each)
            alone = measured_energy(energy, x.select(one), given)
            require_close(alone, costs[one], "a sequence's energy depends on no other row", tolerance=tolerance)
    if isinstance(energy, nn.Module):
        _check_module(energy, x, context, costs)


def _check_module(energy: Any, x: Sequences, context: Context | None, costs: torch.Tensor) -> None:
    was = energy.training
    try:
        energy.train()
        with torch.no_grad():
            law = "an energy is measured without dropout in training mode too"
            require(torch.equal(measured_energy(energy, x, context), costs), law)
        learning = [parameter for parameter in energy.parameters() if parameter.requires_grad]
        if learning:
            energy.zero_grad()
            energy(x, context).sum().backward()
            moved = any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in learning)
            require(moved, "an energy that learns has a gradient")
            energy.zero_grad()
    finally:
        energy.train(was)
