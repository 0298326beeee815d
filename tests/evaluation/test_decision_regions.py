"""Boundaries of a classifier of the plane on a grid, by hand."""

import math

import pytest
import torch
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.evaluation.decision_regions import decision_regions
from ebar.evaluation.grid import Grid

GRID = Grid(torch.tensor([-2.0, -2.0]).double(), torch.tensor([2.0, 2.0]).double(), 5)


class Halves(nn.Module):
    """Two classes, left and right, each believed in further than `gap` from the line between them."""

    def __init__(self, gap: float):
        super().__init__()
        self.gap = nn.Parameter(torch.tensor(gap).double())
        self.dropout = nn.Dropout(0.9)

    def logits(self, x: Tensor) -> Tensor:
        right = x[:, 0] - 0.1
        found: Tensor = self.dropout(10 * torch.stack([-right - self.gap, right - self.gap], 1))
        return found


def test_regions_of_two_halves_by_hand() -> None:
    """Columns −2, −1, 0 are of class 0, those of 1 and 2 of class 1; the boundary lies between 0 and 1."""
    model = Halves(0.95)
    found = decision_regions(model.logits, GRID)
    assert model.training  # left as it was, and without dropout meanwhile
    assert found.classes.tolist() == [[0, 0, 0, 1, 1]] * 5
    assert found.boundary().tolist() == [[False, False, True, True, False]] * 5
    # At 0 the logits are −8.5 and −10.5, at 1 they are −18.5 and −0.5: energy 8.37 and 0.5, both fake.
    assert float(found.energies[0, 2]) == pytest.approx(8.5 - math.log1p(math.exp(-2)))
    assert found.boundary_in_fake() == 1.0
    assert decision_regions(Halves(0.5).logits, GRID).boundary_in_fake() == 0.5  # at 1 it is taken for true
    assert decision_regions(Halves(-0.5).logits, GRID).boundary_in_fake() == 0.0


def test_rows_come_from_below() -> None:
    class Below(nn.Module):
        def logits(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 1], -x[:, 1]], 1)

    assert decision_regions(Below().logits, GRID).classes[:, 0].tolist() == [1, 1, 0, 0, 0]


def test_one_class_has_no_boundary() -> None:
    assert math.isnan(decision_regions(lambda x: x[:, :1], GRID).boundary_in_fake())


def test_what_is_not_a_number_is_told() -> None:
    with pytest.raises(UserError, match="not a number"):
        decision_regions(lambda x: x * math.nan, GRID)
