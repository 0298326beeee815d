"""Where a classifier of the plane draws its boundaries: between classes, and between true and fake.

Of K logits, the fake class having 0, a point is of the class with the largest one, and is taken for true where
log Σₖ exp logitₖ is above 0, its energy below 0. Dai et al. 2017b (arXiv:1705.09783), Figures 2 to 4.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.grid import Grid
from ebar.modes import in_evaluation_mode, modules_in

ROWS = 16_384  # points at a time


class Regions(NamedTuple):
    """What a classifier makes of each node of a grid, row by row from below."""

    classes: Int[Tensor, "size size"]
    energies: Float[Tensor, "size size"]  # −log Σₖ exp logitₖ: below 0 a node is taken for true

    def boundary(self) -> Bool[Tensor, "size size"]:
        """The nodes next to one of another class, beside, above or below it."""
        found = torch.zeros_like(self.classes, dtype=torch.bool)
        across, up = self.classes[:, 1:] != self.classes[:, :-1], self.classes[1:] != self.classes[:-1]
        found[:, 1:] |= across
        found[:, :-1] |= across
        found[1:] |= up
        found[:-1] |= up
        return found

    def boundary_in_fake(self) -> float:
        """The share of those nodes that are taken for fake; where there is no boundary, not a number.

        1 means that the classes meet nowhere but where nothing is believed to be data, as a complement generator makes
        them (Proposition 5).
        """
        nodes = self.boundary()
        return float((self.energies[nodes] > 0).double().mean())


@in_evaluation_mode
@torch.no_grad()
def decision_regions(logits: Callable[[Tensor], Tensor], grid: Grid) -> Regions:
    """The class and the energy at each node.

    `logits` are a classifier's own or, on a plane of features, those that its last layer makes of them.
    """
    parameter = next((weight for module in modules_in(logits) for weight in module.parameters()), torch.empty(0))
    nodes = grid.nodes().to(parameter)
    found = torch.cat([logits(rows) for rows in torch.split(nodes, ROWS)]).double().cpu()
    if bool(found.isnan().any()):
        raise UserError("The classifier has logits that are not a number: train it anew with a lower learning rate.")
    return Regions(found.argmax(1).view(grid.size, grid.size), -found.logsumexp(1).view(grid.size, grid.size))
