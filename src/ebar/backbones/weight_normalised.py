"""Weight normalisation with data-dependent initialisation. Salimans & Kingma 2016 (arXiv:1602.07868).

y = s·(v·x)/‖v‖ + b for each unit: v gives the direction of its weights, s their length. The quotient is taken after
the product, of as many numbers as there are units, rather than of all the weights: the same function at less cost.

Convolutions between images and vectors, for digits of 28×28 pixels and colour images of 32×32 and 64×64.

The layers are those of Dai 2019 (thesis), B.8.1, in the manner of Radford et al. 2016 (arXiv:1511.06434); `features` is
the number of channels of the first layer from image to vector, 64 there. Images are in [0, 1]; inside they are
rescaled to [−1, 1], and what is made of noise ends in a sigmoid, which is tanh on that scale.

Fully connected layers, for networks that read or make points and small images.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ebar.errors import UserError

DEVIATION = 0.05  # of the first directions, whose length is of no consequence


class WeightNormalised(nn.Module):
    """A layer whose weights have a direction and a length; the length learns only where `trainable`.

    While `initialising`, its first pass sets lengths and biases so that each unit has mean 0 and deviation `deviation`
    over the rows (and places) it sees. That happens once: a layer that has been initialised, or whose weights have been
    loaded, stays as it is.
    """

    def __init__(
        self, directions: tuple[int, ...], product: Callable[[Tensor, Tensor], Tensor], *, trainable: bool = False,
        deviation: float = 1.0,
    ):  # fmt: skip
        super().__init__()
        self.product, self.deviation = product, deviation
        self.direction = nn.Parameter(DEVIATION * torch.randn(directions))
        self.length = nn.Parameter(torch.ones(directions[0]), requires_grad=trainable)
        self.bias = nn.Parameter(torch.zeros(directions[0]))
        self.initialised: Tensor
        self.register_buffer("initialised", torch.tensor(False))
        self.initialising = False

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch units ..."]:
        y = self._units(x)
        if self.initialising and not bool(self.initialised):
            with torch.no_grad():
                over = [place for place in range(y.dim()) if place != 1]
                mean, spread = y.mean(over), y.std(over, correction=0)
                if not bool((spread > 0).all()):
                    raise ValueError("a unit has the same value for every row of the data it is initialised on")
                self.length.mul_(self.deviation / spread)
                self.bias.copy_(-mean * self.deviation / spread)
                self.initialised.fill_(True)
            y = self._units(x)
        return y

    def _units(self, x: Tensor) -> Tensor:
        y = self.product(x, self.direction)
        wide = (-1, *[1] * (y.dim() - 2))
        scale = self.length / torch.linalg.vector_norm(self.direction.flatten(1), dim=1)
        return torch.addcmul(self.bias.view(wide), y, scale.view(wide))

    def extra_repr(self) -> str:
        return f"{tuple(self.direction.shape)}, trainable={self.length.requires_grad}"


def dense(inputs: int, units: int, **options: Any) -> WeightNormalised:
    """A fully connected layer."""
    return WeightNormalised((units, inputs), F.linear, **options)


def convolution(
    inputs: int, units: int, *, kernel: int, stride: int = 1, padding: int = 0, **options: Any
) -> WeightNormalised:
    """A convolution of images, with a square kernel."""
    return WeightNormalised(
        (units, inputs, kernel, kernel), Convolution(stride=stride, padding=padding), **options
    )  # fmt: skip


class Convolution:
    """The product of a convolution, without bias."""

    def __init__(self, *, stride: int, padding: int):
        self.stride, self.padding = stride, padding

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, stride=self.stride, padding=self.padding)


def transposed_convolution(inputs: int, units: int, **options: Any) -> WeightNormalised:
    """One of 5×5 that doubles height and width."""
    return WeightNormalised((units, inputs, 5, 5), doubled, **options)


def doubled(x: Tensor, weight: Float[Tensor, "units inputs 5 5"]) -> Tensor:
    """The product of such a convolution, without bias. torch has inputs before units in its weights."""
    return F.conv_transpose2d(x, weight.transpose(0, 1), stride=2, padding=2, output_padding=1)


@contextmanager
def initialising(network: nn.Module) -> Iterator[None]:
    """Inside, the first pass initialises the layers that are not yet, each on what those before it make of the data."""
    layers = [layer for layer in network.modules() if isinstance(layer, WeightNormalised)]
    for layer in layers:
        layer.initialising = True
    try:
        yield
    finally:
        for layer in layers:
            layer.initialising = False


def is_initialised(network: nn.Module) -> bool:
    """Whether nothing is left to be initialised."""
    layers = [layer for layer in network.modules() if isinstance(layer, WeightNormalised)]
    return all(bool(layer.initialised) for layer in layers)


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


def dense_layers(
    width: int, hidden: int, layers: int, *, deviation: float, normalised: bool = False
) -> list[nn.Module]:
    """FC-ReLU `layers` times, from `width` numbers on, with batch normalisation before the ReLU where it is wanted."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        # ε as Dai et al. 2017a have it: torch's 1e-5 is more than the variance of what their first weights give.
        norm = [nn.BatchNorm1d(hidden, eps=1e-6)] if normalised else []
        parts += [normal_layer(nn.Linear(width, hidden), deviation), *norm, nn.ReLU()]
        width = hidden
    return parts


def normal_layer(layer: nn.Linear, deviation: float) -> nn.Linear:
    """With weights from a normal law of mean 0, and biases 0."""
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer
