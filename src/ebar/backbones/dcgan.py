"""Convolutions between images and vectors, for digits of 28×28 pixels and colour images of 32×32 and 64×64.

The layers are those of Dai 2019 (thesis), B.8.1, in the manner of Radford et al. 2016 (arXiv:1511.06434); `features` is
the number of channels of the first layer from image to vector, 64 there. Images are in [0, 1]; inside they are
rescaled to [−1, 1], and what is made of noise ends in a sigmoid, which is tanh on that scale.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.errors import UserError

SLOPE = 0.2  # of the leaky rectifier
ACROSS = {1: 3, 2: 4}  # a stride → the width of its kernel


class Layer(NamedTuple):
    """Channels, in units of the first layer's (0: as many as the image has), and by how much a layer scales."""

    channels: int
    stride: int


class Plan(NamedTuple):
    """The layers for one size of image: from the image to a vector, and from 8 units of channels to the image."""

    smallest: int  # height and width where vectors begin and end
    down: tuple[Layer, ...]
    up: tuple[Layer, ...]


PLANS = {
    28: Plan(7, (Layer(1, 1), Layer(2, 2), Layer(4, 2)), (Layer(4, 2), Layer(2, 2), Layer(0, 1))),
    32: Plan(
        4,
        (Layer(1, 1), Layer(2, 2), Layer(4, 2), Layer(4, 2)),
        (Layer(4, 2), Layer(2, 1), Layer(2, 2), Layer(0, 2)),
    ),
    64: Plan(
        4,
        (Layer(1, 2), Layer(2, 2), Layer(4, 2), Layer(4, 2)),
        (Layer(4, 2), Layer(2, 2), Layer(2, 2), Layer(0, 2)),
    ),
}


WIDEST = 8  # units of channels that noise becomes first


def plan_for(shape: tuple[int, ...]) -> Plan:
    """The layers for images of this shape: channels, height, width."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] not in PLANS:
        came, known = "×".join(map(str, shape[1:] or shape)), ", ".join(f"{size}×{size}" for size in PLANS)
        raise UserError(f"There are no convolutions for data of {came}: give images of {known} pixels.")
    return PLANS[shape[1]]


class ConvolutionalEncoder(nn.Module):
    """Image → vector: convolutions, each with a leaky rectifier.

    With `normalised`, batch normalisation comes before each rectifier, as the authors have it. Its statistics are
    those of the batch at hand in training and running means later: an energy in training depends on what else is in its
    batch.
    """

    def __init__(self, shape: tuple[int, ...], *, features: int = 64, normalised: bool = True):
        super().__init__()
        plan, channels = plan_for(shape), shape[0]
        layers: list[nn.Module] = []
        for units, stride in plan.down:
            layers.append(nn.Conv2d(channels, units * features, ACROSS[stride], stride, padding=1, bias=not normalised))
            layers += [nn.BatchNorm2d(units * features)] if normalised else []
            layers.append(nn.LeakyReLU(SLOPE))
            channels = units * features
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.width = channels * plan.smallest**2
        initialise(self)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch features"]:
        found: Tensor = self.layers(2 * x - 1)
        return found


class ConvolutionalDecoder(nn.Module):
    """Noise → image in [0, 1]: a linear layer, then transposed convolutions with batch normalisation and rectifiers."""

    def __init__(self, latent: int, shape: tuple[int, ...], *, features: int = 64):
        super().__init__()
        plan = plan_for(shape)
        wide = WIDEST * features
        self.linear = nn.Linear(latent, wide * plan.smallest**2, bias=False)
        layers: list[nn.Module] = [nn.Unflatten(1, (wide, plan.smallest, plan.smallest))]
        for units, stride in plan.up:
            layers += [nn.BatchNorm2d(wide), nn.ReLU()]
            narrow = units * features or shape[0]
            layers.append(nn.ConvTranspose2d(wide, narrow, ACROSS[stride], stride, padding=1, bias=units == 0))
            wide = narrow
        self.layers = nn.Sequential(*layers, nn.Sigmoid())
        initialise(self)

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows channels height width"]:
        found: Tensor = self.layers(self.linear(noise))
        return found


@torch.no_grad()
def initialise(network: nn.Module) -> None:
    """Weights from N(0, 0.02²), biases 0, as Radford et al. 2016 have them."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
