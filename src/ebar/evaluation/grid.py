"""Densities of the plane on a grid: what a 2-D energy, a generator and data are compared on.

The grid of Table B.2 (Dai 2019, thesis): 100 × 100 nodes over the data's range, widened on each side by half of its
half-range, so that what the table calls a cell is a node and the points nearest to it. Distributions on a grid are
log-probabilities of its nodes, which add up to 1. KL is between such distributions: neither knows what lies between
two nodes or outside.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.features.feature import Feature, Features
from ebar.models.points import UniformBox
from ebar.models.tilted import measured_energy, score
from ebar.modes import modules_in
from ebar.shapes import of_points
from ebar.types import Distribution, Energy, PointSpace, Scored

PLANE = PointSpace((2,))
ROWS = 16_384  # nodes or points at a time
EPSILON = 1e-8  # see `grid_kl`


class Grid(NamedTuple):
    """size × size nodes on the rectangle from `low` to `high`, the first and last of each row on its edges.

    Nodes are numbered row by row from below, x running fastest: `values.view(size, size)` is what contours are drawn
    of. In float64.
    """

    low: Float[Tensor, "2"]
    high: Float[Tensor, "2"]
    size: int = 100

    def axes(self) -> tuple[Float[Tensor, " size"], Float[Tensor, " size"]]:
        """The coordinates of the columns, and of the rows."""
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        across, up = (torch.linspace(*pair, self.size, dtype=torch.float64) for pair in ends)
        return across, up

    def nodes(self) -> Float[Tensor, "nodes 2"]:
        across, up = self.axes()
        return torch.stack([across.repeat(self.size), up.repeat_interleave(self.size)], 1)

    def areas(self) -> Float[Tensor, " nodes"]:
        """Of what is nearest to each node within the rectangle: the trapezoidal rule's weights, halved on the edges."""
        half = torch.ones(self.size, dtype=torch.float64)
        half[0] = half[-1] = 0.5
        cell = ((self.high - self.low) / (self.size - 1)).prod()
        return (half[:, None] * half).flatten() * cell

    def box(self) -> UniformBox:
        """The uniform distribution on the rectangle, in torch's default type as networks are."""
        return UniformBox(self.low, self.high).to(torch.get_default_dtype())

    def nearest(self, points: Float[Tensor, "points 2"]) -> Int[Tensor, " points"]:
        """The number of the nearest node, which for a point outside is one of the edge."""
        across = (points.double() - self.low) / (self.high - self.low) * (self.size - 1)
        column, row = across.round().clamp(0, self.size - 1).long().unbind(1)
        return row * self.size + column


def grid_around(points: Float[Tensor, "points 2"], *, size: int = 100, widened: float = 0.5) -> Grid:
    """The grid on the points' range, each side moved out by `widened` of half the range."""
    if size < 2:
        raise UserError(f"A grid needs 2 nodes or more along each side, not {size}.")
    points = _checked(points)
    low, high = points.amin(0), points.amax(0)
    if not bool((low < high).all()):
        raise UserError("A grid needs points of more than one place along each axis.")
    margin = widened * (high - low) / 2
    return Grid(low - margin, high + margin, size)


def histogram(grid: Grid, points: Float[Tensor, "points 2"]) -> Float[Tensor, " nodes"]:
    """log of the share of the points nearest to each node, −∞ for a node that has none."""
    counts = torch.bincount(grid.nearest(_checked(points)), minlength=grid.size**2).double()
    return (counts / counts.sum()).log()


@torch.no_grad()
def density_on_grid(model: Distribution[Tensor, PointSpace] | Scored[Tensor], grid: Grid) -> Float[Tensor, " nodes"]:
    """log p of a model at the nodes, normalised over them: the true density, or a tilted model."""
    return torch.log_softmax(_over(grid, lambda x: score(model, x), model), 0)


@torch.no_grad()
def energy_on_grid(energy: Energy[Tensor], grid: Grid) -> Float[Tensor, " nodes"]:
    """E at the nodes, in evaluation mode."""
    return _over(grid, lambda x: measured_energy(energy, x), energy)


def discriminator_on_grid(energies: Float[Tensor, " nodes"], *, entropy_weight: float = 1.0) -> Float[Tensor, " nodes"]:
    """log p ∝ −c/α of the energies c at the nodes.

    With the entropy weighted by α the game's optimum is c = −α·log p, so α belongs here; the table has α = 1.
    """
    if not 0 < entropy_weight < math.inf:
        raise UserError(f"The weight of the entropy that divides an energy is above 0, not {entropy_weight}.")
    return torch.log_softmax(-energies.double() / entropy_weight, 0)


def grid_log_z(grid: Grid, energies: Float[Tensor, " nodes"]) -> float:
    """log ∫ exp(−E) over the rectangle, by the trapezoidal rule.

    What importance sampling with `Tilted(grid.box(), energy)` estimates is this less `grid.box().log_volume`.
    """
    return float(torch.logsumexp(grid.areas().log() - energies.double(), 0))


@torch.no_grad()
def grid_moments(
    grid: Grid, log_probs: Float[Tensor, " nodes"], features: Iterable[Feature[Tensor]]
) -> Float[Tensor, " features"]:
    """E[φ] of a distribution on the grid."""
    return log_probs.double().exp() @ Features(list(features))(grid.nodes()).double()


def grid_kl(first: Float[Tensor, " nodes"], second: Float[Tensor, " nodes"], *, epsilon: float = EPSILON) -> float:
    """KL(p‖r) = Σ p·log(p/r) of two distributions on one grid, after ε is added to each probability of both.

    Without ε a cell that a histogram leaves empty makes it infinite. The table does not tell its ε: with 1e-8 the
    authors' own data give 0.0292 and 0.0158 for the four Gaussians (the table 0.0291, 0.0159), 0.0274 and 0.0144 for
    the biased ones (0.0273, 0.0144). Of the spirals with variance 1, KL(data‖empirical) is 1.2344 and
    KL(empirical‖data) 0.3889, which the table has the other way round (0.3892, 1.2349).
    """
    if not 0 <= epsilon < math.inf:
        raise UserError(f"The ε of a divergence on a grid is 0 or more, not {epsilon}.")
    p, r = ((log_probs.double().exp() + epsilon) / (1 + epsilon * len(log_probs)) for log_probs in (first, second))
    return float((torch.xlogy(p, p) - torch.xlogy(p, r)).sum())


def pairwise_kl(
    distributions: Mapping[str, Float[Tensor, " nodes"]], *, epsilon: float = EPSILON
) -> dict[tuple[str, str], float]:
    """KL of every ordered pair of named distributions on one grid, as in Table B.2."""
    return {
        (first, second): grid_kl(distributions[first], distributions[second], epsilon=epsilon)
        for first, second in itertools.permutations(distributions, 2)
    }


def _over(grid: Grid, function: Callable[[Tensor], Tensor], model: object) -> Float[Tensor, " nodes"]:
    """A function at every node, which it is given in the type of the model's own tensors."""
    tensors = [
        tensor for module in modules_in(model) for tensor in itertools.chain(module.parameters(), module.buffers())
    ]
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), grid.low)
    values = [function(part.to(like)) for part in torch.split(grid.nodes(), ROWS)]
    found = torch.cat(values).double().to(grid.low.device)
    if bool(found.isnan().any()):
        raise UserError(f"The model is not a number at the point {grid.nodes()[found.isnan()][0].tolist()}.")
    return found


def _checked(points: Float[Tensor, "points 2"]) -> Float[Tensor, "points 2"]:
    points = of_points(points, PLANE).double()
    if len(points) == 0 or not bool(points.isfinite().all()):
        raise UserError("A grid is made of one or more points, all of them finite.")
    return points
