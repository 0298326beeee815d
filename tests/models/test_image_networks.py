"""Generators and discriminators of images, each for one step of a game on made-up images."""

from typing import Any

import pytest
import torch
from torch import Generator

from ebar.energies.discriminators import DISCRIMINATORS
from ebar.errors import UserError
from ebar.models.classifiers import GaussianInference
from ebar.models.generators import GENERATORS, ImplicitGenerator
from ebar.objectives.adversarial_costs import NeighbourEntropy, VariationalEntropy
from ebar.objectives.energy_gan import EnergyGan, Together
from ebar.training.batches import Batches
from ebar.training.games import WithNoise
from ebar.training.loop import fit
from ebar.training.players import Player
from ebar.types import Energy

SHAPES = [(1, 28, 28), (3, 32, 32), (3, 64, 64)]


@pytest.mark.parametrize("entropy", [NeighbourEntropy(neighbours=3, form="unit"), VariationalEntropy()])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_on_made_up_images_moves_every_player(shape, entropy):
    torch.manual_seed(0)
    made: Any = GENERATORS.make("dcgan", {"features": 1, "latent": 3}, shape=shape)
    energy: Any = DISCRIMINATORS.make("dcgan", {"features": 1}, shape=shape)
    assert all(isinstance(network, kind) for network, kind in ((made, ImplicitGenerator), (energy, Energy)))
    inference = None
    if entropy.infers:
        inference = GaussianInference(DISCRIMINATORS.make("dcgan", {"features": 1}, shape=shape), 3)
    game = EnergyGan(generator=made, energy=energy, inference=inference, entropy=entropy, control=Together())
    modules: dict[str, Any] = {"generator": made, "discriminator": energy} | (
        {"inference": inference} if inference else {}
    )
    players = {
        name: Player(module=module, optimiser=torch.optim.Adam(module.parameters(), lr=1e-2))
        for name, module in modules.items()
    } | {"memory": Player(module=game.memory)}
    before = {
        name: torch.nn.utils.parameters_to_vector(module.parameters()).clone() for name, module in modules.items()
    }
    images = torch.rand(8, *shape, generator=Generator().manual_seed(1))
    batches = WithNoise(batches=Batches(data=images, batch_size=8), latent=3, seed=0)
    step = next(fit(game, batches, players, generator=Generator()))
    assert step.halt is None
    for name, module in modules.items():
        assert not torch.equal(before[name], torch.nn.utils.parameters_to_vector(module.parameters())), name
    drawn = made.sample(3, generator=Generator().manual_seed(0))
    assert drawn.shape == (3, *shape)
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1
    assert energy(drawn).shape == (3,)
    assert energy.features(drawn).shape == (3, energy.width)


def test_images_of_another_size_are_refused_in_one_sentence():
    energy = DISCRIMINATORS.make("dcgan", {"features": 1}, shape=SHAPES[0])
    with pytest.raises(UserError, match=r"shape \[rows, 1, 28, 28\], not \[.*, 1, 32, 32\]"):
        energy(torch.rand(2, 1, 32, 32))
    with pytest.raises(UserError, match="no convolutions for data of 30×30"):
        GENERATORS.make("dcgan", {}, shape=(1, 30, 30))
