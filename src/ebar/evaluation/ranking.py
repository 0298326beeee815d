"""Images ranked by their energy, and how far the ranking goes along with the distance to the mean image.

An energy that keeps the density of data finds typical images likely and unusual ones unlikely (Dai 2019, thesis,
sections 6.2 and B.5.2). In pixels the mean image stands for what is typical: a rank correlation near 1 says that the
energy grows with the distance to it, one near 0 that it tells nothing of it. It is no proof of a right density: an
energy that has learnt to measure that distance, and nothing else, would have 1.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.correlation import spearman_correlation
from ebar.modes import in_evaluation_mode
from ebar.types import Energy, Estimate

AT_ONCE = 1000  # rows


class Ranking(NamedTuple):
    """Rows from the lowest energy to the highest."""

    order: Int[Tensor, " rows"]
    energies: Float[Tensor, " rows"]  # of the rows as they were given, in no order

    def first(self, count: int) -> Int[Tensor, " count"]:
        """The likeliest rows, the likeliest first."""
        return self.order[:count]

    def last(self, count: int) -> Int[Tensor, " count"]:
        """The unlikeliest rows, the unlikeliest last."""
        return self.order[max(len(self.order) - count, 0) :]


@torch.no_grad()
@in_evaluation_mode
def rank_by_energy(energy: Energy[Tensor], x: Float[Tensor, "rows ..."]) -> Ranking:
    """Rows by their energy, in evaluation mode; of equal energies the earlier row comes first."""
    if len(x) == 0:
        raise UserError("There is nothing to rank: give one row at least.")
    energies = torch.cat([energy(part).double() for part in torch.split(x, AT_ONCE)]).cpu()
    if bool(energies.isnan().any()):
        raise UserError(f"The energy of row {int(energies.isnan().nonzero()[0])} is not a number: check the network.")
    return Ranking(energies.argsort(stable=True), energies)


def distance_to_mean(x: Float[Tensor, "rows ..."], mean: Float[Tensor, "..."]) -> Float[Tensor, " rows"]:
    """The Euclidean distance of each row to the mean of other data, the training data as a rule."""
    found: Tensor = torch.linalg.vector_norm((x.double() - mean.double()).flatten(1), dim=1)
    return found


def rank_correlation(
    ranking: Ranking, distances: Float[Tensor, " rows"], *, of: Bool[Tensor, " rows"] | None = None, level: float = 0.95
) -> Estimate:
    """Spearman's correlation between energies and distances, of all rows or of some.

    Its interval is over rows: it says nothing of another training.
    """
    chosen = slice(None) if of is None else of
    return spearman_correlation(ranking.energies[chosen], distances.cpu()[chosen], level=level)


def share_of(ranking: Ranking, real: Bool[Tensor, " rows"], *, count: int) -> tuple[float, float]:
    """The share of real rows among the likeliest and among the unlikeliest."""
    first, last = (float(real[rows].double().mean()) for rows in (ranking.first(count), ranking.last(count)))
    return first, last
