import math

import pytest
import torch
from torch import Generator

from ebar.data.languages import Language
from ebar.errors import UserError
from ebar.evaluation.moments import frequencies, moment_distance, true_moments
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Features
from ebar.features.functions import Predicate
from ebar.features.regular import Expression, Motif, StartsWith
from ebar.maths.enumeration import all_sequences
from ebar.types import Estimate


def every_kind(longest: int) -> Features:
    return Features(
        [
            Motif(motif="11", alphabet="01", end=2, absent=True),
            Expression(expression="0(10)+", alphabet="01", end=2),
            StartsWith(prefix="1", alphabet="01", end=2),
            Length(longest=longest, end=2),
            NgramCount(ngram="00", alphabet="01", end=2, longest=longest),
        ]
    )


@pytest.mark.parametrize("stop", [None, 0.3])
def test_true_means_are_those_of_enumeration(stop):
    truth = Language(motif="01", length=7, stop=stop).distribution()
    features, x = every_kind(8), all_sequences(truth.space)
    expected = (truth.log_prob(x).exp()[:, None] * features(x)).sum(0).tolist()
    found = true_moments(truth, features)
    assert list(found) == features.names
    assert list(found.values()) == pytest.approx(expected, abs=1e-12)


def test_true_means_of_the_documents_language():
    # Known of the language of the 14-bit motif from elsewhere: the share that starts with 0, that has the motif and a
    # 0 after it, and that has not the seven bits of 0011001.
    truth = Language(motif="10001011111000").distribution()
    features = Features(
        [
            StartsWith(prefix="0", alphabet="01", end=2),
            Motif(motif="100010111110000", alphabet="01", end=2, absent=True),
            Motif(motif="1000101", alphabet="01", end=2, absent=True),
            Motif(motif="0011001", alphabet="01", end=2, absent=True),
        ]
    )
    assert list(true_moments(truth, features).values()) == pytest.approx([0.47061, 0.52921, 0.0, 0.91106], abs=5e-6)


def test_a_feature_that_no_automaton_follows_has_no_true_mean():
    truth = Language(motif="01", length=4).distribution()
    with pytest.raises(UserError, match="No automaton follows the feature 'odd'"):
        true_moments(truth, Features([Predicate(name="odd", function=lambda tokens: True, end=2)]))


def test_a_distance_by_hand():
    found = moment_distance(
        {"a": Estimate(0.5, 0.4, 0.7, 100.0, "doubtful"), "b": Estimate(0.2, 0.1, 0.3, 80.0)},
        {"b": 0.25, "a": Estimate(0.9, 0.8, 1.0, 200.0)},
    )
    assert found.value == pytest.approx(0.4 + 0.05)
    assert found.low == pytest.approx(0.1)  # a: 0.8 − 0.7; b may be nothing
    assert found.high == pytest.approx(0.6 + 0.15)
    assert (found.effective_sample_size, found.warning) == (80.0, "doubtful")
    exact = moment_distance({"a": 0.5}, {"a": 0.75})
    assert exact == Estimate.exact(0.25)
    assert moment_distance({}, {}).value == 0
    assert math.isnan(moment_distance({"a": math.nan}, {"a": 0.5}).value)


def test_sets_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="different features"):
        moment_distance({"a": 0.5}, {"b": 0.5})
    with pytest.raises(ValueError, match="different levels"):
        moment_distance({"a": Estimate(0.5, 0.4, 0.6, 9.0)}, {"a": Estimate(0.5, 0.4, 0.6, 9.0, None, 0.9)})


def test_the_interval_covers_the_distance_between_two_languages():
    # Conservative: over 200 sets of 300 draws it misses fewer than the 5 % it may, by chance (binomial) under 4 in
    # 10,000 times more than 19 of them. The true distances are far from 0, where missing is possible on both sides.
    truth, other = Language(motif="01", length=7).distribution(), Language(motif="110", length=7).distribution()
    features = every_kind(8)
    moments = true_moments(truth, features)
    right = moment_distance(true_moments(other, features), moments).value
    assert right > 0.3
    draws = other.sample(200 * 300, generator=Generator().manual_seed(5))
    missed = 0
    for rows in torch.arange(200 * 300).reshape(200, 300):
        found = moment_distance(frequencies(draws.select(rows), features), moments)
        missed += not found.low <= right <= found.high
    assert missed <= 19
