"""Best of n by hand, against enumeration, and against drawing n again and again."""

import itertools
import math

import pytest
import torch

from ebar.errors import UserError
from ebar.evaluation.best_of_n import exact_best, expected_best, kl_bound, n_for


def test_the_best_of_two_of_three_rewards_is_their_mean_over_pairs():
    """Four copies of each reward, so that groups can be left out."""
    rewards = torch.tensor([1.0, 2.0, 6.0] * 4)
    pairs = [max(pair) for pair in itertools.combinations(rewards.tolist(), 2)]
    found = expected_best(rewards, 2)
    assert found.value == pytest.approx(sum(pairs) / len(pairs))
    assert found.low < found.value < found.high
    assert expected_best(rewards, 1).value == pytest.approx(3.0)


def test_of_uniform_rewards_the_best_of_n_is_n_over_n_plus_one(generator):
    """5 times the half-width of 95 %: one false alarm in 10²²; 400 intervals hold the truth 95 times in 100."""
    rewards = torch.rand(4000, generator=generator)
    for n in (1, 4, 32):
        found = expected_best(rewards, n)
        assert abs(found.value - n / (n + 1)) < 5 * (found.high - found.value)
    inside = 0
    for _ in range(400):
        one = expected_best(torch.rand(400, generator=generator), 4)
        inside += one.low < 0.8 < one.high
    assert 350 < inside < 400  # binomial(400, 0.95): outside once in 10⁶ runs


def test_two_texts_with_a_half_each():
    """Best of 2: the better one unless both draws are the worse, 3/4. KL = ¾·log 3/2 + ¼·log ½ < log 2 − ½."""
    log_q = torch.tensor([0.5, 0.5]).log()
    best = exact_best(log_q, torch.tensor([0.0, 1.0]), 2)
    torch.testing.assert_close(best.log_prob.exp(), torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert best.kl == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert best.reward == pytest.approx(0.75)
    assert best.kl < kl_bound(2)


def test_ties_share_what_their_level_has_and_nothing_is_gained_where_all_tie():
    log_q = torch.tensor([0.1, 0.3, 0.6]).log()
    best = exact_best(log_q, torch.tensor([1.0, 1.0, 0.0]), 2)
    torch.testing.assert_close(best.log_prob.exp(), torch.tensor([0.16, 0.48, 0.36], dtype=torch.float64))
    assert exact_best(log_q, torch.ones(3), 5).kl == pytest.approx(0, abs=1e-12)
    forbidden = exact_best(log_q, torch.tensor([-math.inf, 0.0, 1.0]), 3)
    assert forbidden.log_prob[0].exp() == pytest.approx(0.001)  # all three draws are the forbidden text
    assert forbidden.reward == -math.inf


def test_the_kl_of_many_texts_without_ties_nears_its_bound_from_below(generator):
    kls = []
    for count in (10, 100, 10_000):
        log_q = torch.log_softmax(torch.zeros(count), 0)
        kls.append(exact_best(log_q, torch.randn(count, generator=generator), 8).kl)
    assert kls == sorted(kls)
    assert kl_bound(8) - 1e-3 < kls[-1] < kl_bound(8)


def test_n_for_is_the_largest_whose_bound_is_not_above():
    assert n_for(0.0) == 1
    for n in (2, 3, 7, 100, 12345):
        assert n_for(kl_bound(n) + 1e-9) == n
        assert n_for(kl_bound(n) - 1e-9) == n - 1


def test_too_few_draws_are_said_to_be_too_few():
    with pytest.raises(UserError, match="from 40 draws or more, not 30"):
        expected_best(torch.zeros(30), 10)
    with pytest.raises(UserError, match="1 draw or more, not 0"):
        expected_best(torch.zeros(30), 0)
