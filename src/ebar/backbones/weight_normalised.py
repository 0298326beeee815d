"""Weight normalisation with data-dependent initialisation. Salimans & Kingma 2016 (arXiv:1602.07868).

y = s·(v·x)/‖v‖ + b for each unit: v gives the direction of its weights, s their length. The quotient is taken after
the product, of as many numbers as there are units, rather than of all the weights: the same function at less cost.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

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
