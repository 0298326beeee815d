"""Two equally likely sequences, 0 and 1, and one feature: the sequence is 1."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from ebar.energies.linear import Linear
from ebar.features.counts import NgramCount
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.testing.enumeration import whole_space
from ebar.types import Distribution, Energy, Scored, Sequences, Space

SPACE = Space(vocabulary=2, length=1)
ONE = Motif(motif="1", alphabet="01", end=None)


def tilted(coefficient: float) -> Any:
    base = Tabular(SPACE, torch.zeros(1, 1, 2, dtype=torch.float64))
    return Tilted(base, Linear(Features([ONE]), torch.tensor([coefficient], dtype=torch.float64)))


def probabilities(coefficient: float) -> list[float]:
    return torch.softmax(tilted(coefficient).log_score(whole_space(SPACE)), 0).tolist()


def test_a_coefficient_of_log_3_makes_a_feature_three_times_likelier():
    assert probabilities(math.log(3)) == pytest.approx([1 / 4, 3 / 4])


def test_a_coefficient_of_minus_infinity_forbids_the_feature():
    assert probabilities(-math.inf) == [1.0, 0.0]
    assert tilted(-math.inf).log_score(whole_space(SPACE)).tolist() == [math.log(0.5), -math.inf]


def test_the_score_is_the_base_times_the_exponential_of_minus_the_energy():
    model = tilted(math.log(3))
    x = whole_space(SPACE)
    assert model.energy(x).tolist() == pytest.approx([0.0, -math.log(3)])
    assert model.log_score(x).exp().tolist() == pytest.approx([1 / 2, 3 / 2])  # so Z = 2
    assert model.space == SPACE


def test_a_tilted_model_has_a_score_and_nothing_that_needs_z():
    assert isinstance(tilted(1.0), Scored)
    assert not isinstance(tilted(1.0), Distribution)
    assert isinstance(tilted(1.0).energy, Energy)


@pytest.mark.parametrize(
    ("coefficients", "bound", "largest"),
    [
        ([0.5, 2.0], 0.5 * 3 + 2, 0.5 * 2 + 2),  # three ones leave no room for a zero
        ([0.5, -1.0], 0.5 * 3, 0.5 * 3),
        ([-0.5, -math.inf], 0.0, -0.5 * 3),  # without a zero there are three ones
    ],
)
@torch.no_grad()
def test_no_score_exceeds_the_bound(coefficients, bound, largest):
    """Of three bits: the number of ones, up to 3, and whether there is a zero."""
    ones = NgramCount(ngram="1", alphabet="01", end=None, longest=3)
    zero = Motif(motif="0", alphabet="01", end=None)
    energy = Linear(Features([ones, zero]), torch.tensor(coefficients, dtype=torch.float64))
    assert energy.log_bound() == bound
    assert float((-energy(whole_space(Space(2, 3)))).max()) == largest


def test_the_gradient_of_log_z_is_the_mean_of_the_feature():
    model = tilted(math.log(3))
    (gradient,) = torch.autograd.grad(model.log_score(whole_space(SPACE)).logsumexp(0), [model.energy.coefficients])
    assert gradient.tolist() == pytest.approx([3 / 4])


def test_an_energy_of_a_forbidden_feature_has_no_undefined_gradient():
    energy = Linear(Features([ONE, ONE]), torch.tensor([-math.inf, 1.0], dtype=torch.float64))
    (-energy(Sequences(torch.tensor([[0]]), torch.tensor([1])))).sum().backward()
    assert isinstance(energy.coefficients, nn.Parameter)
    assert energy.coefficients.grad is not None
    assert energy.coefficients.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("coefficient", [math.inf, math.nan])
def test_a_coefficient_without_a_finite_z_is_refused(coefficient):
    with pytest.raises(ValueError, match="a number or −inf"):
        tilted(coefficient)


def test_as_many_coefficients_as_features():
    with pytest.raises(ValueError, match="1 features need as many coefficients, got 2"):
        Linear(Features([ONE]), torch.zeros(2))
