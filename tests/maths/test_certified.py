"""Certified limits: by hand for one draw, and their chance to fail by enumerating every sample there can be."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from ebar.maths.jackknife import certified_log_means, certified_mean, certified_stakes

LOG_40 = math.log(40)  # what 2.5 % on either side allow


def every_sample(values: list[float], chances: list[float], size: int) -> tuple[Tensor, Tensor]:
    """All sequences of `size` independent values, and the chance of each."""
    places = torch.tensor(list(product(range(len(values)), repeat=size)))
    return torch.tensor(values, dtype=torch.float64)[places], torch.tensor(chances, dtype=torch.float64)[places].prod(1)


def test_one_draw_by_hand():
    # Nothing comes before it, so the stake is min(0.9, √(2 log 40)) = 0.9. Lower: 0.1 + 0.9·w/z = 40. Upper, with
    # the largest weight 1 and the least 0: κ = 0.9, and 1 + 0.9·(z − w) = 40 is beyond the largest z there can be.
    limits = certified_log_means(torch.tensor([[math.log(0.5)]]), highest=0.0)
    assert float(limits.low) == pytest.approx(math.log(0.45 / 39.9))
    assert float(limits.high) == pytest.approx(0.0)


def test_two_equal_rows_by_hand():
    # One draw of 1 in each of two rows, weights at most 1: (0.1 + 0.9/z)² = 40 for both rows, by symmetry.
    limits = certified_log_means(torch.zeros(2, 1), highest=0.0)
    stake = min(0.9, math.sqrt(2 * LOG_40 / 2))
    assert float(limits.low) == pytest.approx(2 * math.log(stake / (math.sqrt(40) - 1 + stake)))


def test_the_gamblers_expected_fortune_is_one():
    """The identity that everything rests on: exact, over all samples, for rows with different means."""
    values, chances = [0.05, 0.4, 1.0], [0.5, 0.3, 0.2]
    other = [0.2, 0.5, 0.3]
    first, chance_first = every_sample(values, chances, 3)
    second, chance_second = every_sample(values, other, 3)
    pairs = torch.tensor(list(product(range(27), repeat=2)))
    weights = torch.stack([first[pairs[:, 0]], second[pairs[:, 1]]], 1)
    chance = chance_first[pairs[:, 0]] * chance_second[pairs[:, 1]]
    means = torch.tensor([[math.fsum(v * c for v, c in zip(values, row, strict=True))] for row in (chances, other)])
    stakes = certified_stakes(weights.log(), math.log(0.05), LOG_40)
    above = 1 + stakes.above * (weights / means - 1)
    below = 1 + stakes.below * (means - weights)
    for fortunes in (above, below):
        assert bool((fortunes >= 0).all())
        assert float((chance * fortunes.prod(-1).prod(-1)).sum()) == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("probability", [0.03, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("bound", [0.5, 3.0])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_both_sides_fail_at_most_as_often_as_they_say(probability, bound, level):
    """Two-point weights, all 1,024 samples of ten draws: the chances are exact. At level 0.5 there is room to fail."""
    log_weights, chance = every_sample([bound, -bound], [probability, 1 - probability], 10)
    limits = certified_log_means(log_weights[:, None], highest=bound, lowest=-bound, level=level)
    truth = math.log(probability * math.exp(bound) + (1 - probability) * math.exp(-bound))
    assert float(chance[limits.low > truth + 1e-9].sum()) <= (1 - level) / 2
    assert float(chance[limits.high < truth - 1e-9].sum()) <= (1 - level) / 2


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_rows_with_no_mean_in_common(level):
    """Three rows of three draws each, with different chances of a large weight; levels that leave room to fail."""
    values, rows = [1.0, -1.0], [0.1, 0.5, 0.8]
    samples = [every_sample(values, [p, 1 - p], 3) for p in rows]
    picks = torch.tensor(list(product(range(8), repeat=3)))
    log_weights = torch.stack([samples[row][0][picks[:, row]] for row in range(3)], 1)
    chance = torch.stack([samples[row][1][picks[:, row]] for row in range(3)]).prod(0)
    limits = certified_log_means(log_weights, highest=1.0, lowest=-1.0, level=level)
    truth = math.fsum(math.log(p * math.e + (1 - p) / math.e) for p in rows)
    assert float(chance[limits.low > truth].sum()) <= (1 - level) / 2
    assert float(chance[limits.high < truth].sum()) <= (1 - level) / 2
    assert bool((limits.low < limits.high).all())


def test_limits_are_the_extremes_of_what_the_gambler_allows():
    """Against a grid over the means of two rows."""
    log_weights = torch.tensor([[-0.3, -2.0, -0.1, -1.0], [-1.5, -0.2, -2.5, -0.7]], dtype=torch.float64)
    level = 0.5
    limits = certified_log_means(log_weights, highest=0.0, lowest=-3.0, level=level)
    stakes = certified_stakes(log_weights, -3.0, math.log(4))
    grid = torch.linspace(-3, 0, 1501, dtype=torch.float64)
    weights, means = log_weights.exp(), grid.exp()[:, None]
    above, below = [], []
    for row in range(2):
        above.append(torch.log(1 + stakes.above[0] * (weights[row] / means - 1)).sum(1))
        below.append(torch.log(1 + stakes.below[row] * (means - weights[row])).sum(1))
    sums = grid[:, None] + grid
    lowest = sums[above[0][:, None] + above[1] <= math.log(4)].min()
    highest = sums[below[0][:, None] + below[1] <= math.log(4)].max()
    assert float(limits.low) == pytest.approx(float(lowest), abs=0.005)
    assert float(limits.high) == pytest.approx(float(highest), abs=0.005)
    assert float(limits.low) <= float(lowest) + 1e-9
    assert float(limits.high) >= float(highest) - 1e-9


def test_weights_of_zero_say_nothing_from_below():
    limits = certified_log_means(torch.full((1, 50), -math.inf), highest=2.0)
    assert float(limits.low) == -math.inf
    assert -math.inf < float(limits.high) < 2.0  # fifty draws of nothing do say that there is not much
    bounded = certified_log_means(torch.full((1, 50), -2.0), highest=2.0, lowest=-2.0)
    assert float(bounded.low) == pytest.approx(-2.0)


def test_a_shift_of_all_weights_is_a_shift_of_the_limits():
    log_weights = torch.linspace(-1, 1, 40, dtype=torch.float64).view(2, 20)
    plain = certified_log_means(log_weights, highest=1.5, lowest=-1.5)
    shifted = certified_log_means(log_weights + 5, highest=6.5, lowest=3.5)
    for one, other in zip(plain, shifted, strict=True):
        assert float(other) == pytest.approx(float(one) + 10, abs=1e-6)


@pytest.mark.parametrize("probability", [0.02, 0.3, 0.5, 0.95])
def test_a_mean_of_bounded_values_by_enumeration(probability):
    values, chance = every_sample([2.0, -1.0], [probability, 1 - probability], 9)
    limits = certified_mean(values, lowest=-1.0, highest=2.0)
    truth = 3 * probability - 1
    assert float(chance[limits.low > truth + 1e-9].sum()) <= 0.025
    assert float(chance[limits.high < truth - 1e-9].sum()) <= 0.025
    assert bool((limits.low >= -1 - 1e-9).all())
    assert bool((limits.high <= 2 + 1e-9).all())


def test_many_draws_make_them_about_as_narrow_as_normal_ones():
    """Evenly spread log-weights, in an order that has nothing to do with their size: √(2 log 40)/1.96 = 1.39."""
    places = (torch.arange(4096) * 1597) % 4096  # a permutation: 1597 is odd
    log_weights = (places.double() / 4096 - 0.5)[None]
    limits = certified_log_means(log_weights, highest=1.0, lowest=-1.0)
    weights = log_weights.exp()
    normal = 2 * 1.96 * float(weights.std() / weights.mean()) / 64
    assert 1.3 < float(limits.high - limits.low) / normal < 1.6
