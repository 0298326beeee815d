"""The curve's intervals against leaving out one draw at a time, which knows nothing of how they were made."""

import math

import pytest
import torch
from torch import Tensor

from ebar.samplers.trade_off import trade_off
from ebar.types import Estimate

# What may multiply the standard error, at most: a quantile, and where the scale of the logarithm bends, a little more.
FIELDS = {"acceptance_rate": 2.1, "total_variation": 2.55, "divergence": 3.1}
POOL = 0.5 * torch.special.ndtri((torch.arange(300, dtype=torch.float64) + 0.5) / 300)  # no two weights are equal
LOG_BETA = 0.2


def points(pool: Tensor) -> dict[str, Estimate]:
    (point,) = trade_off(pool, torch.tensor([LOG_BETA], dtype=torch.float64))
    return {field: getattr(point, field) for field in FIELDS}


def half_width(estimate: Estimate) -> float:
    """Of the interval on the scale of the logarithm, downwards: upwards it may have more to allow for."""
    return math.log(estimate.value / estimate.low)


def test_the_width_is_a_quantile_times_the_error_of_the_jackknife():
    # Every weight counts, Z and Z_β being estimated too. Quantiles of 95 to 97 % are 1.96 to 2.17, Student's
    # more; to first order all ways to an error agree, and what is left is O(1/n).
    without = [points(torch.cat([POOL[:row], POOL[row + 1 :]])[None]) for row in range(len(POOL))]
    whole = points(POOL[None])
    for field, most in FIELDS.items():
        values = torch.tensor([left[field].value for left in without], dtype=torch.float64)
        jackknife = float(((len(values) - 1) * values.var(unbiased=False)).sqrt())
        assert 1.85 < half_width(whole[field]) / (jackknife / whole[field].value) < most


def test_errors_of_contexts_add_up_in_quadrature_and_a_mean_of_two_has_half_of_that():
    pools = torch.stack([POOL, 0.7 * POOL + 0.1])
    both, one, two = points(pools), points(pools[:1]), points(pools[1:])
    for field in FIELDS:
        errors = [half_width(found[field]) * found[field].value for found in (one, two)]
        assert half_width(both[field]) * both[field].value == pytest.approx(math.hypot(*errors) / 2, rel=0.12)
