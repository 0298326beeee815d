"""How often predictions are right: accuracy and error rate, overall and by subset."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.means import plain_share
from ebar.types import Estimate


def accuracy(predicted: Int[Tensor, " rows"], labels: Int[Tensor, " rows"], *, level: float = 0.95) -> Estimate:
    """The share of right predictions, between 0 and 1; Wilson's interval over rows, taken to be independent."""
    if len(labels) == 0:
        raise UserError("There are no predictions to score: give one at least.")
    if bool((labels < 0).any()):
        raise UserError("Some labels are not known (−1): predictions are scored on labelled data.")
    right = float((predicted.cpu() == labels.cpu()).sum())
    return plain_share(right, float(len(labels)), level=level)


def error_rate(predicted: Int[Tensor, " rows"], labels: Int[Tensor, " rows"], *, level: float = 0.95) -> Estimate:
    """The share of wrong predictions, 1 − accuracy."""
    right = accuracy(predicted, labels, level=level)
    return right._replace(value=1 - right.value, low=1 - right.high, high=1 - right.low)


def accuracy_by_subset(
    predicted: Int[Tensor, " rows"], labels: Int[Tensor, " rows"], subsets: Sequence[str], *, level: float = 0.95
) -> dict[str, Estimate]:
    """The accuracy of all rows, as "all", and of the rows of each subset, such as RACE's middle and high."""
    if len(subsets) != len(labels):
        raise UserError(f"{len(subsets):,} rows have a subset and {len(labels):,} a label: give one for each.")
    found = {"all": accuracy(predicted, labels, level=level)}
    for name in sorted(set(subsets) - {""}):
        inside = torch.tensor([own == name for own in subsets])
        found[name] = accuracy(predicted.cpu()[inside], labels.cpu()[inside], level=level)
    return found
