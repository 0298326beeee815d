"""Ends of an interval for one coefficient, against families whose tails are known."""

import math

import pytest
import torch
from scipy.stats import binom, chi2
from torch import Tensor

from ebar.maths.exponential_family import distances, match

PRECISION = 2e-3  # to which ends are solved for


def grid(low: float, high: float, step: float) -> Tensor:
    return torch.arange(low, high + step / 2, step, dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_normal_feature_has_walds_interval_for_every_size(size: int) -> None:
    """N(0, 1) tilted by λ is N(λ, 1): λ̂ is the mean of the data, and its error N(0, 1/|D|)."""
    points = grid(-12, 12, 0.05)
    found = distances(points[:, None], -points.square() / 2, torch.tensor([0.7]), 0, size=size)
    assert found == pytest.approx([1.959964 / math.sqrt(size)] * 2, rel=PRECISION)
    wider = distances(points[:, None], -points.square() / 2, torch.tensor([0.7]), 0, size=size, level=0.99)
    assert wider == pytest.approx([2.575829 / math.sqrt(size)] * 2, rel=PRECISION)


@pytest.mark.parametrize("column", [0, 1])
def test_a_second_feature_that_must_be_known_too_widens_it(column: int) -> None:
    """Normal features of variances 1 and 4 and correlation ½: that of λⱼ is (Σ⁻¹)ⱼⱼ/|D|, by hand 4/3 and 1/3."""
    one, two = torch.meshgrid(grid(-8, 8, 0.4), grid(-16, 16, 0.8), indexing="ij")
    points = torch.stack([one.flatten(), two.flatten()], 1)
    precision = torch.linalg.inv(torch.tensor([[1.0, 1.0], [1.0, 4.0]], dtype=torch.float64))
    log_weights = -((points @ precision) * points).sum(1) / 2
    found = distances(points, log_weights, torch.tensor([0.5, -0.3]), column, size=3)
    variance = {0: 4 / 3, 1: 1 / 3}[column] / 3
    assert found == pytest.approx([1.959964 * math.sqrt(variance)] * 2, rel=0.005)


@pytest.mark.parametrize("size", [1, 3, 30])
def test_an_exponential_feature_has_the_interval_of_its_gamma_sum(size: int) -> None:
    """The rate is 1 − λ, and 2·|D|·mean·rate is χ² with 2|D| degrees of freedom."""
    points, mean = grid(0.01, 1200, 0.02), 2.0
    rates = chi2.ppf([0.025, 0.975], 2 * size) / (2 * size * mean)
    found = distances(points[:, None], -points, torch.tensor([mean]), 0, size=size)
    estimate = 1 - 1 / mean  # λ̂
    assert 1 - (estimate - found.below) == pytest.approx(rates[1], rel=0.01)
    assert 1 - (estimate + found.above) == pytest.approx(rates[0], abs=0.002)


@pytest.mark.parametrize(("size", "count"), [(2, 1), (5, 1), (5, 3), (20, 1), (20, 7), (100, 50), (1000, 3)])
def test_a_binary_feature_has_about_the_mid_p_interval_of_its_binomial(size: int, count: int) -> None:
    """At each end the data's own count, half of it, and what is farther out have a chance of about 2.5 %."""
    points, log_weights = torch.tensor([[0.0], [1.0]]), torch.tensor([0.9, 0.1]).log()
    wanted = torch.tensor([count / size])
    estimate = float(match(points, log_weights, wanted).coefficients)
    found = distances(points, log_weights, wanted, 0, size=size)
    for end, upper in ((estimate - found.below, True), (estimate + found.above, False)):
        share = 1 / (1 + 9 * math.exp(-end))
        beyond = binom.sf(count, size, share) if upper else binom.cdf(count - 1, size, share)
        assert 0.024 < beyond + 0.5 * binom.pmf(count, size, share) < 0.046


def test_many_draws_of_few_kinds_are_those_kinds_with_their_weights(generator: torch.Generator) -> None:
    kinds = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    drawn = torch.randint(4, (500,), generator=generator)
    counts = torch.bincount(drawn, minlength=4).double()
    wanted = torch.tensor([1.4, 0.5])
    one = distances(kinds[drawn], torch.full((500,), 3.0), wanted, 0, size=7)
    other = distances(kinds, counts.log(), wanted, 0, size=7)
    assert tuple(one) == pytest.approx(tuple(other), rel=PRECISION)
