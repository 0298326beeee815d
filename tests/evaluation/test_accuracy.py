import pytest
import torch

from ebar.errors import UserError
from ebar.evaluation.accuracy import accuracy, accuracy_by_subset, error_rate
from ebar.maths.proportions import wilson

LABELS = torch.tensor([0, 1, 2, 1, 0])
PREDICTED = torch.tensor([0, 1, 1, 1, 2])


def test_three_of_five_are_right():
    found = accuracy(PREDICTED, LABELS)
    assert found.value == 0.6
    assert (found.low, found.high) == wilson(3.0, 5.0)
    assert found.effective_sample_size == 5
    wrong = error_rate(PREDICTED, LABELS)
    assert wrong.value == pytest.approx(0.4)
    assert (wrong.low, wrong.high) == pytest.approx(wilson(2.0, 5.0))


def test_choices_are_counted_by_subset():
    found = accuracy_by_subset(PREDICTED, LABELS, ["middle", "high", "high", "middle", ""])
    assert {name: own.value for name, own in found.items()} == {"all": 0.6, "high": 0.5, "middle": 1.0}
    assert found["middle"].low == wilson(2.0, 2.0)[0] < 1 == found["middle"].high


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(UserError, match="no predictions"):
        accuracy(PREDICTED[:0], LABELS[:0])
    with pytest.raises(UserError, match="not known"):
        accuracy(PREDICTED, LABELS - 1)
    with pytest.raises(UserError, match="2 rows have a subset and 5 a label"):
        accuracy_by_subset(PREDICTED, LABELS, ["a", "b"])
