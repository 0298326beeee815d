"""Numbers worked out on paper."""

import math

import pytest
import torch

from ebar.maths.divergences import entropy, jensen_shannon_terms, kl, total_variation
from ebar.maths.enumeration import all_sequences, has_at_most, number_of_sequences
from ebar.maths.importance import unseen_side
from ebar.maths.jackknife import half_width, log_mean_bounds, log_rest, variance
from ebar.maths.log_space import effective_sample_size, exponential, log_mean_exp, normalised
from ebar.maths.proportions import wilson
from ebar.types import Space


def logs(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def close(found: torch.Tensor | float, expected: float) -> bool:
    return float(found) == pytest.approx(expected, abs=1e-12)


def test_weights_1_and_3_have_mean_2_shares_a_quarter_and_three_and_are_worth_1_6_draws():
    assert close(log_mean_exp(logs(1, 3)), math.log(2))
    assert normalised(logs(1, 3)).tolist() == pytest.approx([0.25, 0.75])
    assert close(effective_sample_size(logs(1, 3)), 16 / 10)
    assert close(effective_sample_size(logs(0, 0)), 0)


def test_weights_1_and_3_without_one_of_them_leave_three_quarters_and_a_quarter():
    assert log_rest(logs(1, 3)).exp().tolist() == pytest.approx([0.75, 0.25])


def test_bounds_of_weights_1_and_3():
    # T = log 2. Leaving one out: log 3 and log 1, mean ½ log 3. J = 2 log 2 − ½ log 3; 2J − T = 3 log 2 − log 3.
    bounds = log_mean_bounds(logs(1, 3))
    assert close(bounds.lower, math.log(2))
    assert close(bounds.corrected, 2 * math.log(2) - math.log(3) / 2)
    assert close(bounds.upper, math.log(8 / 3))


def test_bounds_of_weights_1_2_and_3():
    # Leaving one out: means 5/2, 2, 3/2, product 15/2. J = 3 log 2 − (2/3) log(15/2).
    bounds = log_mean_bounds(logs(1, 2, 3))
    corrected = 3 * math.log(2) - 2 / 3 * math.log(7.5)
    assert close(bounds.corrected, corrected)
    assert close(bounds.upper, 2 * corrected - math.log(2))


def test_a_weight_that_dominates_by_e80_leaves_the_others_exactly():
    rest = log_rest(torch.tensor([80.0, 0.0, math.log(3)], dtype=torch.float64))
    assert close(rest[0], math.log(4) - 80)  # 1 − share would have been 0
    assert close(rest[1], 0.0)


def test_one_positive_weight_has_no_upper_bound_and_none_at_all_has_no_lower():
    lonely = log_mean_bounds(logs(0, 2))
    assert close(lonely.lower, 0.0)
    assert float(lonely.upper) == math.inf
    silent = log_mean_bounds(logs(0, 0))
    assert (float(silent.lower), float(silent.upper)) == (-math.inf, math.inf)


def test_the_half_width_of_0_1_2_is_students():
    # Leave-one-out means of (0, 1, 2) are 3/2, 1, 1/2: (n−1)/n·Σd² = ⅔·½ = ⅓, the variance 1 over 3.
    # Kurtosis 3/2 would leave 12 degrees of freedom; there are only 2, whose 97.5 % quantile is 4.302653.
    width = half_width(torch.tensor([1.5, 1.0, 0.5], dtype=torch.float64))
    assert float(width) == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)


def test_a_few_large_deviations_leave_fewer_degrees_of_freedom():
    # One in 100 deviates: kurtosis 1/(pq) − 3 = 1/0.0099 − 3, so 200/(1/0.0099 − 4) = 2.0616 degrees.
    from scipy.stats import t

    deviations = torch.zeros(100, dtype=torch.float64)
    deviations[0] = 1.0
    expected = t.ppf(0.975, 200 / (1 / 0.0099 - 4)) * math.sqrt(99 / 100 * 0.99)
    assert float(half_width(deviations)) == pytest.approx(expected, rel=1e-9)


def test_half_widths_of_a_constant_and_of_a_single_draw():
    assert float(half_width(torch.ones(5, dtype=torch.float64))) == 0
    assert float(half_width(torch.ones(1, dtype=torch.float64))) == math.inf


def test_divergences_between_half_half_and_a_quarter_three_quarters():
    p, q = logs(0.5, 0.5), logs(0.25, 0.75)
    assert close(kl(p, q), 0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert close(kl(q, p), 0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert close(total_variation(p, q), 0.25)
    # The mean is (3/8, 5/8).
    expected = (0.5 * math.log(4 / 3) + 0.5 * math.log(4 / 5) + 0.25 * math.log(2 / 3) + 0.75 * math.log(6 / 5)) / 2
    assert close(jensen_shannon_terms(p, q).value.sum(-1), expected)
    assert close(entropy(q), 2 * math.log(2) - 0.75 * math.log(3))


def test_divergences_where_supports_differ():
    p, q = logs(0.5, 0.5, 0.0), logs(1.0, 0.0, 0.0)
    assert float(kl(p, q)) == math.inf
    assert close(kl(q, p), math.log(2))
    assert close(total_variation(p, q), 0.5)
    assert close(jensen_shannon_terms(logs(1, 0), logs(0, 1)).value.sum(-1), math.log(2))


def test_wilsons_interval_of_none_of_ten_and_five_of_ten():
    # z² = 3.841459: none of ten gives z²/(n + z²); five of ten gives ½ ± ½·z/√(n + z²).
    assert wilson(0.0, 10.0) == pytest.approx((0.0, 3.841458820694124 / 13.841458820694124))
    half = 0.5 * 1.959963984540054 / math.sqrt(13.841458820694124)
    assert wilson(5.0, 10.0) == pytest.approx((0.5 - half, 0.5 + half))


def test_unseen_sides():
    assert unseen_side("motif", 0.0, 1.0, 0.0, 1.0) is None
    assert "no draw has the feature 'motif'" in str(unseen_side("motif", 0.0, 0.0, 0.0, 1.0))
    assert "every draw has the feature 'motif'" in str(unseen_side("motif", 1.0, 1.0, 0.0, 1.0))
    assert "no draw" in str(unseen_side("count", 0.0, 0.0, 0.0, 7.0))
    assert unseen_side("length", 31.0, 31.0, 1.0, 31.0) is None  # a fixed length is no accident
    assert unseen_side("constant", 3.0, 3.0, 3.0, 3.0) is None


def test_two_letters_and_an_end_make_seven_sequences_of_at_most_three():
    space = Space(3, 3, end=2)
    assert number_of_sequences(space) == 7 == len(all_sequences(space).lengths)
    assert has_at_most(space, 7)
    assert not has_at_most(space, 6)
    assert not has_at_most(Space(2, 2**60), 1_000_000)
    assert not has_at_most(Space(2, 2**60, end=1), 1_000_000)


def test_what_lies_between_strata_is_no_error():
    deviations = torch.tensor([0.0, 0.0, 5.0, 5.0], dtype=torch.float64)
    assert float(half_width(deviations, strata=torch.tensor([0, 0, 1, 1]))) == 0.0
    assert float(half_width(deviations)) > 0


def test_strata_add_up_their_variances():
    # Means of two laws, two draws of each: θ = ½·(mean of 1, 3) + ½·(mean of 10, 16). Var θ = ¼·(2/2 + 18/2) = 2.5.
    values = torch.tensor([1.0, 3.0, 10.0, 16.0], dtype=torch.float64)
    found, freedom = variance((values.mean() - values) / 3, strata=torch.tensor([0, 0, 1, 1]))
    assert float(found) == pytest.approx(2.5)
    # Each variance has one degree of freedom: (¼ + 9/4)² / ((¼)² + (9/4)²).
    assert float(freedom) == pytest.approx(2.5**2 / (0.25**2 + 2.25**2))


def test_an_exponential_without_room_is_infinite_and_none_of_no_number():
    assert exponential(math.log(3)) == pytest.approx(3)
    assert (exponential(1000.0), exponential(math.inf), exponential(-math.inf)) == (math.inf, math.inf, 0.0)
    assert math.isnan(exponential(math.nan))
