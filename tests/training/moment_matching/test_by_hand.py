"""Steps of moment matching small enough for paper."""

import math

import pytest
import torch
from torch import Tensor

from ebar.training.moment_matching.first_order import Schedule, _descend, _Scale
from ebar.training.moment_matching.newton import _half_added
from ebar.training.moment_matching.pool import Pool
from ebar.training.moment_matching.uncertainty import bound_at_the_end
from ebar.training.moment_matching.wanted import Wanted


def test_the_rule_of_three_bounds_a_feature_that_no_datum_has():
    """r has it with probability 0.3, none of 20 data has: a share s with (1 − s)²⁰ = 5 % might still go unseen, and
    the λ that gives s is logit s − logit 0.3. Nothing was drawn, so nothing is added."""
    pool = Pool(
        torch.tensor([[0.0], [1.0]], dtype=torch.float64),
        torch.tensor([1.4, 0.6], dtype=torch.float64).log(),
        torch.zeros(2, dtype=torch.long),
        True,
    )
    wanted = Wanted(torch.zeros(1, dtype=torch.float64), 20, torch.zeros(20, 1, dtype=torch.float64))
    share = 1 - 0.05 ** (1 / 20)
    assert share == pytest.approx(0.139, abs=1e-3)
    found = bound_at_the_end(pool, wanted, torch.tensor([-6.0], dtype=torch.float64), 0, ridge=0.0, level=0.95)
    assert found == pytest.approx(math.log(share / (1 - share)) - math.log(0.3 / 0.7), abs=1e-6)


def test_steps_shrink_as_one_over_the_epoch():
    """One update an epoch, gaps 0.4, 0.2 and 0.1: λ = 10·0.4 + 5·0.2 + 10/3·0.1."""
    goal = torch.tensor([0.6], dtype=torch.float64)
    gaps = iter([0.4, 0.2, 0.1])

    def moments(coefficients: Tensor, first: bool) -> Tensor:
        return goal - next(gaps)

    scale = _Scale(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    end = _descend(Schedule(updates=1, max_epochs=3), Wanted(goal, None, None), scale, moments)
    assert end.trace == pytest.approx((0.4, 0.2, 0.1))
    assert float(end.coefficients) == pytest.approx(4.0 + 1.0 + 1 / 3)


@pytest.mark.parametrize(("share", "size"), [(0.0, 9), (0.25, 4), (1.0, 1)])
def test_half_a_draw_is_added_to_either_side(share: float, size: int):
    assert _half_added(share, size) == pytest.approx((share * size + 0.5) / (size + 1))
    assert _half_added(share, size) + _half_added(1 - share, size) == pytest.approx(1.0)
