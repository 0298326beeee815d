"""Shares and costs whose intervals have parts that are easily lost."""

import math

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.diversity import distinct, unique_ratios
from ebar.evaluation.exposure_bias import win_rate
from ebar.evaluation.moments import frequency
from ebar.features.feature import Features
from ebar.maths.proportions import wilson
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Estimate, Sequences, Space


def test_sentences_count_by_their_tokens():
    # One of one, none of three: 1 of 4 tokens, though the mean of the sentences' shares is a half.
    found = win_rate(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert found.value == pytest.approx(0.25)
    # 11 of 12 in four sentences of three: the interval would reach 1.18.
    found = win_rate(
        torch.tensor([3.0, 2.0, 3.0, 3.0], dtype=torch.float64), torch.full((4,), 3.0, dtype=torch.float64)
    )
    assert (found.value, found.high) == pytest.approx((11 / 12, 1.0))


def test_the_error_of_log_z_reaches_down_as_it_reaches_up():
    """All data alike cost log 2 each, for 2 tokens: the only error is log Z's, 0.3 below and 0.4 above."""
    base = Tabular(Space(2, 2), torch.tensor([[[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]], dtype=torch.float64).log())
    target = Tilted(base, Linear(Features([]), torch.zeros(0, dtype=torch.float64)))
    data = Sequences(torch.zeros(5, 2, dtype=torch.long), torch.full((5,), 2))
    found = cross_entropy(target, data, log_z=Estimate(1.0, 0.7, 1.4, 50.0, None))
    for cost, tokens in ((found.per_sequence, 1), (found.per_token, 2), (found.pooled_per_token, 2)):
        ends = (math.log(2) + 0.7, math.log(2) + 1.0, math.log(2) + 1.4)
        assert (cost.low, cost.value, cost.high) == pytest.approx([end / tokens for end in ends])


@pytest.mark.parametrize("level", [0.5, 0.99])
def test_a_frequency_has_the_interval_of_the_level_asked_for(level: float):
    found = frequency(torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64), level=level)
    assert (found.low, found.high, found.level) == pytest.approx((*wilson(1.0, 4.0, level), level))


def test_unless_others_are_asked_for_n_grams_are_of_one_to_four_tokens():
    texts = ["a b c d", "b c d e"]
    assert list(unique_ratios({"ours": texts})["ours"]) == list(distinct(texts)) == [1, 2, 3, 4]
    # Of eight tokens five are different, of six pairs four, of four triples three; both runs of four are.
    assert distinct(texts) == {1: 5 / 8, 2: 4 / 8, 3: 3 / 8, 4: 2 / 8}
