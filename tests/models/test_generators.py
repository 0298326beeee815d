import math

import pytest
import torch
from torch import Generator

from ebar.energies.discriminators import DISCRIMINATORS, MlpDiscriminator
from ebar.errors import UserError
from ebar.models.classifiers import GaussianInference, diagonal_log_prob
from ebar.models.generators import GENERATORS, ImplicitGenerator, MlpGenerator
from ebar.types import Context, Energy, Sequences

SHAPES = [(2,), (1, 8, 8)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["mlp"])
def test_every_generator_draws_rows_of_its_shape_by_the_seed_alone(name, shape):
    made = GENERATORS.make(name, {}, shape=shape)
    kinds: list[object] = [made]
    assert isinstance(kinds[0], ImplicitGenerator)
    first, again = (made.sample(5, generator=Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == (5, *shape)
    assert torch.equal(first, again)
    assert made.training  # as it was
    many = made.sample(4100, generator=Generator().manual_seed(3))
    assert len(many) == 4100
    assert not many.requires_grad
    with pytest.raises(UserError, match="no context"):
        made.sample(1, Context(Sequences(torch.zeros(1, 1).long(), torch.ones(1).long())), generator=Generator())


def test_the_noise_of_a_generator_follows_its_law():
    """With no hidden layer x = W·z + b: with W = 1 and b = 0, x is the noise."""
    made = MlpGenerator(shape=(1,), latent=1, layers=0, law="uniform")
    torch.nn.init.ones_(made.layers[0].weight)  # type: ignore[arg-type]
    drawn = made.sample(4000, generator=Generator().manual_seed(0))
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=5 / (12 * 4000) ** 0.5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["mlp"])
def test_every_discriminator_is_an_energy_with_features(name, shape, generator):
    made = DISCRIMINATORS.make(name, {}, shape=shape)
    kinds: list[object] = [made]
    assert isinstance(kinds[0], Energy)
    x = torch.rand(7, *shape, generator=generator)
    assert made(x).shape == (7,)
    assert made.features(x).shape == (7, made.width)
    with pytest.raises(UserError, match="Points must have shape"):
        made(torch.rand(7, *shape[:-1], shape[-1] + 1))


def test_an_energy_by_hand_and_above_0_where_it_must_be():
    """One hidden layer: max(0, 2·x)·(−3) + 1 is −5 at x = 1 and 1 at x = −1."""
    made = MlpDiscriminator(shape=(1,), hidden=1, layers=1)
    made.load_state_dict({"layers.0.weight": torch.tensor([[2.0]]), "layers.0.bias": torch.zeros(1),
                          "head.weight": torch.tensor([[-3.0]]), "head.bias": torch.ones(1)})  # fmt: skip
    x = torch.tensor([[1.0], [-1.0]])
    assert made(x).tolist() == [-5.0, 1.0]
    made.positive = True
    assert made(x).tolist() == pytest.approx([math.log1p(math.exp(-5)), math.log1p(math.exp(1))])


def test_the_log_density_of_a_diagonal_gaussian_by_hand():
    """z = (1, 0), μ = (0, 0), σ = (1, e): −½ − 1 − log 2π."""
    one = torch.tensor
    found = diagonal_log_prob(one([[1.0, 0.0]]), one([[0.0, 0.0]]), one([[0.0, 1.0]]))
    assert float(found) == pytest.approx(-0.5 - 1 - math.log(2 * math.pi))
    z, mean, log_deviation = torch.randn(3, 5, 2, generator=Generator().manual_seed(0))
    expected = torch.distributions.Normal(mean, log_deviation.exp()).log_prob(z).sum(-1)
    torch.testing.assert_close(diagonal_log_prob(z, mean, log_deviation), expected)


def test_a_bound_keeps_the_logarithm_of_the_deviation_within_it(generator):
    network = MlpDiscriminator(shape=(2,), deviation=5.0)
    x = 100 * torch.randn(50, 2, generator=generator)
    free, bounded = (GaussianInference(network, 4, bound=bound, deviation=1.0) for bound in (None, 2.0))
    bounded.head.load_state_dict(free.head.state_dict())
    assert free(x)[1].abs().max().item() > 2
    assert bounded(x)[1].abs().max().item() <= 2
    assert torch.equal(free(x)[0], bounded(x)[0])
    assert free.log_prob(torch.zeros(50, 4), x).shape == (50,)
