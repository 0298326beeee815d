import math

import pytest
import torch
from torch import Generator

from ebar.energies.discriminators import MlpDiscriminator
from ebar.errors import UserError
from ebar.evaluation.entropy_gradient import entropy_gradient_quality
from ebar.models.classifiers import GaussianInference
from ebar.objectives.adversarial_costs import (
    ENTROPIES,
    ConstantTerm,
    EntropyTerm,
    NeighbourEntropy,
    VariationalEntropy,
    density_gradients,
)


def test_the_gradient_of_a_line_of_four_points_by_hand():
    """0, 1, 3, 10 with two neighbours. Of 3: mean of 0 and 1 is ½, so −2½; {3, 1, 0} has variance 14/9."""
    x = torch.tensor([[0.0], [1.0], [3.0], [10.0]], dtype=torch.float64)
    found = density_gradients(x, neighbours=2)
    expected = [2 / (14 / 9), 0.5 / (14 / 9), -2.5 / (14 / 9), -8 / (134 / 9)]  # of 10: {10, 3, 1}, mean 14/3
    assert found.flatten().tolist() == pytest.approx(expected)
    assert density_gradients(x, neighbours=2, form="unit").flatten().tolist() == [1.0, 1.0, -1.0, -1.0]


def test_a_point_is_no_neighbour_of_its_own_even_where_another_lies_on_it():
    x = torch.tensor([[0.0], [0.0], [4.0]])
    assert density_gradients(x, neighbours=1, form="unit").flatten().tolist() == [0.0, 0.0, -1.0]
    assert density_gradients(torch.zeros(3, 2), neighbours=2).tolist() == [[0.0, 0.0]] * 3  # no direction at all


def test_a_coordinate_that_hardly_varies_does_not_explode():
    x = torch.randn(50, 2, generator=Generator().manual_seed(0)) * torch.tensor([1.0, 1e-9])
    assert float(density_gradients(x, neighbours=10).abs().max()) < 100


def test_the_surrogate_has_the_gradient_it_stands_for():
    x = torch.randn(30, 1, 2, 2, generator=Generator().manual_seed(1)).requires_grad_()
    for form in ("variance", "unit"):
        (found,) = torch.autograd.grad(NeighbourEntropy(neighbours=5, form=form).surrogate(x, x[:, 0, 0], None), x)
        expected = density_gradients(x.flatten(1), neighbours=5, form=form).view_as(x) / 30
        torch.testing.assert_close(found, expected)


def test_fewer_samples_than_neighbours_is_one_sentence():
    with pytest.raises(UserError, match="20 neighbours are wanted and a sample has 9 others in its batch"):
        density_gradients(torch.randn(10, 2), neighbours=20)
    assert density_gradients(torch.randn(21, 2), neighbours=20).shape == (21, 2)


def test_the_variational_surrogate_is_the_mean_cost_of_guessing_the_noise():
    """A network whose last layer is 0 guesses N(0, I): ½·|z|² + latent/2·log 2π."""
    inference = GaussianInference(MlpDiscriminator(shape=(2,)), 3)
    torch.nn.init.zeros_(inference.head.weight)
    z = torch.tensor([[1.0, 0, 0], [0, 2.0, 1.0]])
    found = VariationalEntropy().surrogate(torch.zeros(2, 2), z, inference)
    assert found.item() == pytest.approx((0.5 + 2.5) / 2 + 1.5 * math.log(2 * math.pi))
    with pytest.raises(UserError, match="needs an inference network"):
        VariationalEntropy().surrogate(torch.zeros(2, 2), z, None)


@pytest.mark.parametrize("name", ENTROPIES)
def test_every_entry_is_a_term_with_a_weight(name):
    term = ENTROPIES.make(name, {})
    assert isinstance(term, EntropyTerm)
    assert term.infers is (name == "variational")
    assert ConstantTerm().surrogate(torch.ones(2, 2), torch.ones(2, 2), None).item() == 0


@pytest.mark.parametrize("form", ["variance", "unit"])
def test_fifty_neighbours_of_500_point_along_the_gradient_and_twenty_less_so(form):
    """Over 20 batches of 500 the standard error of the mean cosine is below 0.005: nine of them below 0.9."""
    generator = Generator().manual_seed(5)
    fifty, twenty = (entropy_gradient_quality(neighbours=k, form=form, generator=generator) for k in (50, 20))
    assert fifty.outside.value > 0.9
    assert fifty.outside.low > 0.9
    assert twenty.outside.value == pytest.approx(0.78, abs=0.05)
    assert fifty.everywhere.value < fifty.outside.value  # near the mode the direction is noise
    if form == "variance":
        assert fifty.length.value == pytest.approx(1.2, abs=0.1)  # and the length about right


def test_the_quality_does_not_depend_on_the_deviation():
    found = [
        entropy_gradient_quality(deviation=deviation, repeats=3, generator=Generator().manual_seed(2))
        for deviation in (1.0, 7.0)
    ]
    for one, other in zip(*found, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-9)
