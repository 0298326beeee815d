"""The curve's intervals against leaving out one draw at a time, which knows nothing of how they were made."""

import math

import pytest
import torch
from torch import Tensor

from ebar.samplers.trade_off import trade_off
from ebar.types import Estimate

FIELDS = ("acceptance_rate", "total_variation", "divergence")
POOL = 0.5 * torch.special.ndtri((torch.arange(300, dtype=torch.float64) + 0.5) / 300)  # no two weights are equal
LOG_BETA = 0.3


def points(pool: Tensor) -> dict[str, Estimate]:
    (point,) = trade_off(pool, torch.tensor([LOG_BETA], dtype=torch.float64))
    return {field: getattr(point, field) for field in FIELDS}


def claimed_error(estimate: Estimate) -> float:
    """The standard error that the interval's width stands for."""
    return math.log(estimate.high / estimate.low) / 2 / 1.959964 * estimate.value


def test_the_width_is_that_of_the_jackknife():
    # Every weight counts, Z and Z_β being estimated too. To first order both agree; the rest is O(1/n).
    without = [points(torch.cat([POOL[:row], POOL[row + 1 :]])[None]) for row in range(len(POOL))]
    whole = points(POOL[None])
    for field in FIELDS:
        values = torch.tensor([left[field].value for left in without], dtype=torch.float64)
        jackknife = float(((len(values) - 1) * values.var(unbiased=False)).sqrt())
        assert claimed_error(whole[field]) == pytest.approx(jackknife, rel=0.05)


def test_the_error_of_a_mean_over_contexts_is_half_of_that_of_a_sum_of_two():
    pools = torch.stack([POOL, 0.7 * POOL + 0.1])
    both, one, two = points(pools), points(pools[:1]), points(pools[1:])
    for field in FIELDS:
        errors = [claimed_error(found[field]) for found in (one, two)]
        assert claimed_error(both[field]) == pytest.approx(math.hypot(*errors) / 2, rel=1e-3)
