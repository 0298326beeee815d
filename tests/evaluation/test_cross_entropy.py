import math

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.evaluation.cross_entropy import bits_difference, cross_entropy, cross_entropy_difference
from ebar.evaluation.moments import frequencies, frequency, mean_length
from ebar.features.feature import Features
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Context, Estimate, Sequences, Space
from tests.estimators.conftest import Length, Starts


def half() -> Tabular:
    """A letter or the end, evenly, until the third place, which is the end."""
    return Tabular(Space(2, 3, end=1), torch.zeros(1, 7, 2, dtype=torch.float64))


DATA = Sequences(torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]), torch.tensor([1, 2, 3, 3]))


def test_costs_of_four_sequences_worked_out_by_hand():
    # −log p is log 2 times 1, 2, 2, 2; lengths 1, 2, 3, 3.
    found = cross_entropy(half(), DATA)
    assert found.per_sequence.value == pytest.approx(7 / 4 * math.log(2))
    assert found.per_token.value == pytest.approx((1 + 1 + 2 / 3 + 2 / 3) / 4 * math.log(2))
    assert found.pooled_per_token.value == pytest.approx(7 / 9 * math.log(2))
    assert found.perplexity.value == pytest.approx(2 ** (7 / 9))
    # Student's of four: the deviations (−3, 1, 1, 1)/4 have variance ¼, so the half-width is 3.182446·½/2; their
    # kurtosis of 7/3 would leave 6 degrees of freedom, of which 3 are there.
    assert found.per_sequence.high - found.per_sequence.value == pytest.approx(3.18244630528371 / 4 * math.log(2))


def test_an_unnormalised_model_costs_its_log_z_too_with_its_error():
    # E = −log 3·[starts with 0]: the costs are less by log 3 for the last three.
    target = Tilted(half(), Linear(Features([Starts(0)]), torch.tensor([math.log(3)], dtype=torch.float64)))
    exactly = cross_entropy(target, DATA, log_z=Estimate.exact(math.log(2)))
    assert exactly.per_sequence.value == pytest.approx(7 / 4 * math.log(2) - 3 / 4 * math.log(3) + math.log(2))
    assert exactly.pooled_per_token.value == pytest.approx(exactly.per_sequence.value * 4 / 9)
    mean_inverse = (1 + 1 / 2 + 1 / 3 + 1 / 3) / 4
    expected = (math.log(2) + (2 * math.log(2) - math.log(3)) * (1 / 2 + 2 / 3)) / 4 + mean_inverse * math.log(2)
    assert exactly.per_token.value == pytest.approx(expected)
    roughly = cross_entropy(
        target, DATA, log_z=Estimate(math.log(2), math.log(2) - 0.5, math.log(2) + 0.5, 50, "doubtful")
    )
    before = exactly.per_sequence.high - exactly.per_sequence.value
    assert roughly.per_sequence.high - roughly.per_sequence.value == pytest.approx(math.hypot(before, 0.5))
    assert "doubtful" in str(roughly.per_sequence.warning)


def test_log_z_is_asked_for_exactly_where_it_is_needed():
    target = Tilted(half(), Linear(Features([]), torch.zeros(0, dtype=torch.float64)))
    with pytest.raises(ValueError, match="needs log_z"):
        cross_entropy(target, DATA)
    with pytest.raises(ValueError, match="has none"):
        cross_entropy(half(), DATA, log_z=Estimate.exact(0.0))


def test_an_impossible_sequence_costs_infinitely_much():
    data = Sequences(torch.tensor([[0, 0, 0], [0, 0, 1]]), torch.tensor([3, 3]))
    found = cross_entropy(half(), data)
    assert found.per_sequence.value == found.pooled_per_token.low == math.inf


def test_each_sequence_is_scored_in_its_own_context():
    logits = torch.zeros(2, 7, 2, dtype=torch.float64)
    logits[1, :, 0] = math.log(3)  # in condition 1 a letter has ¾
    model = Tabular(Space(2, 3, end=1), logits)
    data = Sequences(torch.tensor([[1, 0], [1, 0]]), torch.tensor([1, 1]))
    context = Context(Sequences(torch.tensor([[0], [1]]), torch.tensor([1, 1])))
    assert cross_entropy(model, data, context=context).per_sequence.value == pytest.approx(math.log(8) / 2)


def test_frequencies_and_lengths_by_hand():
    found = frequencies(DATA, Features([Starts(0), Length()]))
    starts = found["starts with 0"]
    assert starts.value == 0.75
    assert (starts.low, starts.high) == pytest.approx((0.300642, 0.954413), abs=1e-6)  # Wilson, 3 of 4
    assert found["length"].value == mean_length(DATA).value == pytest.approx(9 / 4)
    assert "no draw has the feature 'motif'" in str(frequency(torch.zeros(50), name="motif").warning)


def test_a_difference_of_costs_is_paired(generator):
    space = Space(vocabulary=3, length=4, end=2)
    one, other = (Tabular.random(space, conditions=1, generator=generator) for _ in range(2))
    data = one.sample(200, generator=generator)
    found = cross_entropy_difference(one, other, data)
    alone = [cross_entropy(model, data).pooled_per_token for model in (one, other)]
    assert found.value == pytest.approx(alone[0].value - alone[1].value, rel=1e-9)
    assert cross_entropy_difference(one, one, data).high == 0.0  # nothing differs, so nothing is uncertain
    bits = bits_difference(one, other, data)
    assert bits.value == pytest.approx(found.value / math.log(2))
