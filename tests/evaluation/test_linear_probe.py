import math

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.evaluation.linear_probe import Labelled, fixed_features, linear_probe


def blobs(count: int, seed: int) -> Labelled:
    """Three classes at corners of a triangle, far apart."""
    generator = Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    places = torch.tensor([[0.0, 10.0], [10.0, 0.0], [-10.0, -10.0]])
    return Labelled(places[labels] + torch.randn(count, 2, generator=generator), labels)


def test_classes_that_a_line_separates_are_told_apart(generator):
    found = linear_probe(
        lambda x: x, blobs(60, 0), blobs(30, 1), batch=10, learning_rate=0.1, epochs=5, generator=generator
    )
    assert found.value == 0
    assert found.high > 0  # thirty rows without an error do not prove that there is none


def test_features_that_tell_nothing_leave_the_error_of_a_guess(generator):
    found = linear_probe(torch.zeros_like, blobs(60, 0), blobs(30, 1), epochs=2, generator=generator)
    assert math.isclose(found.value, 2 / 3)


def test_the_scale_of_features_does_not_matter():
    train, test = blobs(60, 0), blobs(30, 1)
    one, other = (
        linear_probe(features, train, test, epochs=1, generator=Generator().manual_seed(0))
        for features in (lambda x: x, lambda x: 1000 * x + 7)
    )
    assert one == other


def test_features_are_fixed_and_measured_in_evaluation_mode(generator):
    network = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5))
    before = [parameter.clone() for parameter in network.parameters()]
    first, second = (fixed_features(network, torch.ones(3, 2)) for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    linear_probe(network, blobs(12, 0), blobs(12, 1), epochs=1, generator=generator)
    assert all(torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))
    assert network.training


def test_images_become_rows_of_features():
    assert fixed_features(lambda x: x, torch.ones(3, 1, 2, 2)).shape == (3, 4)


def test_no_rows_no_probe(generator):
    def same(x: Tensor) -> Tensor:
        return x

    with pytest.raises(UserError, match="labelled rows"):
        linear_probe(same, blobs(0, 0), blobs(3, 0), generator=generator)
