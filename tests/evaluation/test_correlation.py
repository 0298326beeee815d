import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.correlation import matthews_correlation, pearson_correlation, spearman_correlation
from ebar.maths.jackknife import half_width

# 6 true positives, 3 true negatives, 1 false positive, 2 false negatives.
LABELS = torch.tensor([1] * 6 + [0] * 3 + [0] + [1] * 2)
PREDICTED = torch.tensor([1] * 6 + [0] * 3 + [1] + [0] * 2)


def test_matthews_by_hand():
    # (6·3 − 1·2) / √((6+1)(6+2)(3+1)(3+2)) = 16/√1120
    assert matthews_correlation(PREDICTED, LABELS).value == pytest.approx(16 / math.sqrt(1120), abs=1e-12)


def test_matthews_of_two_classes_is_pearson_s_and_of_more_the_ratio_of_covariances(generator: Generator):
    binary = matthews_correlation(PREDICTED, LABELS)
    pearson = pearson_correlation(PREDICTED.double(), LABELS.double())
    assert (binary.value, binary.low, binary.high) == pytest.approx((pearson.value, pearson.low, pearson.high))
    labels, predicted = torch.randint(4, (2, 50), generator=generator)
    x, y = (np.eye(4)[values.numpy()] for values in (labels, predicted))
    covariance = [[sum(np.cov(a[:, k], b[:, k])[0, 1] for k in range(4)) for a in (x, y)] for b in (x, y)]
    expected = covariance[0][1] / math.sqrt(covariance[0][0] * covariance[1][1])
    assert matthews_correlation(predicted, labels).value == pytest.approx(expected, abs=1e-12)


def leave_one_out(function, predicted, labels):
    """The interval of the jackknife on Fisher's scale, row by row."""
    rows = torch.arange(len(labels))
    centre = math.atanh(function(predicted, labels).value)
    left = [math.atanh(function(predicted[rows != row], labels[rows != row]).value) for row in rows]
    width = float(half_width(torch.tensor(left, dtype=torch.float64) - centre))
    return math.tanh(centre - width), math.tanh(centre + width)


def test_intervals_are_the_jackknife_s(generator: Generator):
    found = matthews_correlation(PREDICTED, LABELS)
    assert (found.low, found.high) == pytest.approx(leave_one_out(matthews_correlation, PREDICTED, LABELS))
    x, noise = torch.randn(2, 30, generator=generator, dtype=torch.float64)
    found = pearson_correlation(x, x + noise)
    assert (found.low, found.high) == pytest.approx(leave_one_out(pearson_correlation, x, x + noise))


def test_matthews_where_all_is_right_or_all_is_one_class():
    perfect = matthews_correlation(LABELS, LABELS)
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    # As of z² = 1.96² more rows that are wrong: 8·4/√((8 + z²)·8·(4 + z²)·4).
    more_rows = 1.959963984540054**2
    assert perfect.low == pytest.approx(32 / math.sqrt(32 * (8 + more_rows) * (4 + more_rows)))
    more = matthews_correlation(LABELS.repeat(10), LABELS.repeat(10))
    assert perfect.low < more.low < 1
    constant = matthews_correlation(torch.zeros_like(LABELS), LABELS)
    assert (constant.value, constant.low, constant.high) == (0.0, -1.0, 1.0)
    assert "one class only" in str(constant.warning)
    assert matthews_correlation(1 - LABELS, LABELS).value == -1


def test_pearson_and_spearman_by_hand():
    x, y = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 1.0, 4.0, 9.0])
    # Means 2.5 and 4; Σdxdy = 12, Σdx² = 5, Σdy² = 38. Ranks of y are 2 1 3 4: 1 − 6·2/(4·15) = 0.8.
    assert pearson_correlation(x, y).value == pytest.approx(12 / math.sqrt(190), abs=1e-12)
    assert spearman_correlation(x, y).value == pytest.approx(0.8, abs=1e-12)


def test_pearson_and_spearman_agree_with_scipy(generator: Generator):
    for _ in range(20):
        x = torch.randint(6, (25,), generator=generator).double()  # with ties
        y = x + 3 * torch.randn(25, generator=generator)
        assert pearson_correlation(x, y).value == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
        assert spearman_correlation(x, y).value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_spearman_s_interval_is_that_of_bonett_and_wright(generator: Generator):
    x, noise = torch.randn(2, 50, generator=generator)
    found = spearman_correlation(x, x + noise)
    width = 1.959963984540054 * math.sqrt((1 + found.value**2 / 2) / 47)
    assert math.atanh(found.high) - math.atanh(found.value) == pytest.approx(width)
    assert math.atanh(found.value) - math.atanh(found.low) == pytest.approx(width)


@pytest.mark.parametrize("function", [pearson_correlation, spearman_correlation])
def test_what_has_no_correlation(function):
    same = function(torch.ones(5), torch.arange(5.0))
    assert math.isnan(same.value)
    assert (same.low, same.high) == (-1, 1)
    assert "not defined" in str(same.warning)
    with pytest.raises(UserError, match="two pairs"):
        function(torch.ones(1), torch.ones(1))
    with pytest.raises(UserError, match="finite"):
        function(torch.tensor([1.0, math.nan]), torch.ones(2))
    perfect = function(torch.arange(6.0), 3 * torch.arange(6.0) - 7)
    assert perfect.value == pytest.approx(1)
    assert perfect.low <= perfect.value <= perfect.high <= 1
    assert "go along exactly" in str(perfect.warning)
    with pytest.raises(UserError, match="not known"):
        matthews_correlation(PREDICTED, LABELS - 1)
