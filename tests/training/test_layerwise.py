"""Learning rates by layer: numbers by hand."""

import pytest
import torch
from torch import nn

from ebar.errors import UserError
from ebar.training.layerwise import layers_of, layerwise
from ebar.training.optimisers import OPTIMISERS, LinearDecay, Sgd
from ebar.training.players import Player
from ebar.types import Clock


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(1))
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(12))
        self.norm = nn.LayerNorm(1, bias=False)


def test_layers_are_found_by_their_numbers_in_order_of_number_not_of_name():
    network = Network()
    groups = layers_of(network)
    assert len(groups) == 13
    assert groups[0] == [network.embedding]
    assert groups[3][0] is network.layers[2].weight
    assert groups[11][0] is network.layers[10].weight
    assert {id(one) for one in groups[12]} == {id(network.layers[11].weight), id(network.norm.weight)}


def test_what_does_not_learn_is_left_out_and_still_counted():
    network = Network()
    network.embedding.requires_grad_(False)
    network.layers[0].requires_grad_(False)
    made = layerwise(layers_of(network), 0.5)
    assert [group["factor"] for group in made] == [0.5**k for k in range(10, -1, -1)]


def test_one_step_of_sgd_moves_each_layer_by_rate_times_decay_to_the_number_of_layers_above():
    """Rate 0.8, decay 0.5, gradient 1 everywhere; warm-up of 2 halves the first step: head 0.4, below it 0.2, 0.1."""
    layers = [[nn.Parameter(torch.zeros(2))] for _ in range(3)]
    optimiser = Sgd(learning_rate=0.8).build(layerwise(layers, 0.5))
    player = Player(module=nn.Module(), optimiser=optimiser, schedule=LinearDecay(steps=10, warmup=2))
    for [parameter] in layers:
        parameter.grad = torch.ones(2)
    assert player.set_learning_rate(Clock(0, 0)) == pytest.approx(0.4)
    optimiser.step()
    assert [float(layer[0].detach()[0]) for layer in layers] == pytest.approx([-0.1, -0.2, -0.4])
    # Step 6 is half way from the end of the warm-up to the end: the factors of layers stay what they are.
    assert player.set_learning_rate(Clock(6, 0), rate=0.5) == pytest.approx(0.2)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.05, 0.1, 0.2])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_takes_groups(name):
    layers = [[nn.Parameter(torch.ones(2))] for _ in range(3)]
    optimiser = OPTIMISERS[name]().build(layerwise(layers, 0.9))
    player = Player(module=nn.Module(), optimiser=optimiser)
    for parameter in player.parameters():
        parameter.grad = torch.ones(2)
    player.set_learning_rate(Clock(0, 0))
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.step()
    assert rates == pytest.approx([rates[2] * 0.81, rates[2] * 0.9, rates[2]])
    assert all(float(parameter.detach()[0]) < 1 for parameter in player.parameters())


@pytest.mark.parametrize("decay", [0.0, 1.5, -1.0])
def test_a_decay_outside_0_to_1_is_refused(decay):
    with pytest.raises(UserError, match="above 0 and at most 1"):
        layerwise([[nn.Parameter(torch.zeros(1))]], decay)
