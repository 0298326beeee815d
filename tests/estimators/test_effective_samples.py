"""What draws are worth: by hand, by enumeration, and over runs."""

import math

import pytest
import torch
from torch import Generator

from ebar.estimators.effective_samples import effective_samples, effective_samples_of_base, same_draws
from ebar.maths.proportions import wilson
from ebar.types import Estimate, Sequences


def alone(log_weights: torch.Tensor, unseen: str | None = None) -> Estimate:
    return effective_samples(log_weights.double(), torch.arange(len(log_weights)), unseen=unseen).per_draw


def test_half_of_the_draws_without_weight_are_worth_half():
    found = effective_samples(torch.tensor([0.0, 0.0, -math.inf, -math.inf]), torch.tensor([3, 1, 3, 3]))
    assert (found.per_draw.value, found.draws, found.distinct) == (0.5, 4, 2)
    assert "2 distinct of 4" in str(found)


def test_equal_weights_are_not_known_to_be_worth_1_each():
    """300 draws none of which has weight 0: Wilson's lower end, n/(n + z²) = 300/303.8415."""
    found = alone(torch.full((300,), 3.0))
    assert found.value == pytest.approx(1)
    assert found.high == 1
    assert found.low == pytest.approx(300 / 303.8415, abs=1e-5)


def test_one_of_a_hundred_has_wilsons_interval():
    log_weights = torch.full((100,), -math.inf)
    log_weights[17] = 2.0
    found = alone(log_weights)
    assert (found.low, found.high) == pytest.approx(wilson(1.0, 100.0))
    assert (found.low, found.high) == pytest.approx((0.00177, 0.0545), abs=1e-4)
    none = alone(torch.full((100,), -math.inf))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(wilson(0.0, 100.0)[1])


def test_copies_within_a_group_count_as_one():
    """20 resampled draws, 6 distinct texts with 10, 4, 3, 1, 1, 1 copies: 20²/(100 + 16 + 9 + 3) = 3.125."""
    items = torch.arange(6).repeat_interleave(torch.tensor([10, 4, 3, 1, 1, 1]))
    found = effective_samples(torch.zeros(20), items, groups=torch.zeros(20).long())
    assert found.per_draw.effective_sample_size == pytest.approx(3.125)
    assert found.per_draw.value == pytest.approx(3.125 / 20)
    assert (found.distinct, found.per_draw.low) == (6, 0.0)
    assert "depend on one another" in str(found.per_draw.warning)
    # Independent draws may well agree: then each counts.
    assert effective_samples(torch.zeros(20), items, groups=torch.arange(20)).per_draw.value == pytest.approx(1)
    assert effective_samples(torch.zeros(20), items).per_draw.value == pytest.approx(1)


def test_what_was_never_seen_makes_the_worth_unknown():
    found = alone(torch.zeros(300), unseen="no draw has the feature 'rabbit'")
    assert math.isnan(found.value)
    assert (found.low, found.high, found.warning) == (0.0, 1.0, "no draw has the feature 'rabbit'")


def test_sequences_are_the_same_whatever_their_padding_holds():
    tokens = torch.tensor([[1, 2, 0], [1, 2, 7], [1, 2, 7], [1, 0, 0]])
    same = same_draws(Sequences(tokens, torch.tensor([2, 2, 3, 1]))).tolist()
    assert same[0] == same[1]
    assert len(set(same)) == 3


def test_worth_elsewhere_is_that_of_q():
    """q = ½, ¼, ¼ and P/q = 1, 2, 4, so Z = 2 and E_q w² = ½ + 1 + 4 = 5.5: 4/5.5. g is uniform, each drawn alike."""
    q, w = torch.tensor([0.5, 0.25, 0.25]).double(), torch.tensor([1.0, 2.0, 4.0]).double()
    found = effective_samples_of_base((3 * q * w).log().repeat(100), w.log().repeat(100))
    assert found.value == pytest.approx(4 / 5.5)
    assert found.low < 4 / 5.5 < found.high


def test_an_interval_is_as_wide_as_its_spread_over_runs():
    """E w = 1.5 and E w² = 2.5 of weights 1 and 2 in equal parts: 0.9."""
    covered, centres, widths = 0, [], []
    for seed in range(200):
        weights = torch.randint(1, 3, (400,), generator=Generator().manual_seed(seed)).double()
        one = alone(weights.log())
        covered += one.low <= 0.9 <= one.high
        centres.append(math.log(one.value))
        widths.append(math.log(one.high / one.low) / 2)
    assert covered >= 174  # below with probability 2e-6 at 95 %; seeds are fixed
    assert sum(widths) / 200 == pytest.approx(1.96 * float(torch.tensor(centres).std()), rel=0.25)
