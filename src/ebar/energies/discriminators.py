"""Discriminators as energies of points and images: c(x), lower where data are.

A discriminator is a module with `shape` and `width`; `forward(x)` gives one energy for each row, `features(x)` what its
last layer reads. An inference network is made from the features of another of the same kind (`models.inference`).
"""

import math
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ebar.backbones.weight_normalised import ConvolutionalEncoder, dense_layers, initialise, normal_layer
from ebar.bounds import Amount, Count, Natural
from ebar.shapes import of_points
from ebar.tables import Table
from ebar.types import Context, PointSpace


class MlpDiscriminator(nn.Module):
    """Fully connected layers, as for the points of Dai et al. 2017a (B.8.1)."""

    def __init__(
        self, *, shape: tuple[int, ...], hidden: Count = 128, layers: Natural = 2, deviation: Amount = 0.01,
        positive: bool = False,
    ):  # fmt: skip
        """FC(shape, hidden)-ReLU, `layers` of them, then FC(hidden, 1).

        Args:
            shape: Of one x.
            hidden: Units of a layer.
            layers: Hidden ones.
            deviation: Of the first weights, which are normal; biases are 0. The public code has 0.01 for mixtures of
                few Gaussians and 0.1 for spirals.
            positive: Energies above 0, by a softplus, as EBGAN needs them.
        """
        super().__init__()
        self.shape, self.positive = tuple(shape), positive
        numbers = math.prod(self.shape)
        self.width = hidden if layers else numbers
        self.layers = nn.Sequential(*dense_layers(numbers, hidden, layers, deviation=deviation))
        self.head = normal_layer(nn.Linear(self.width, 1), deviation)

    def features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        found: Tensor = self.layers(of_points(x, PointSpace(self.shape)).flatten(1))
        return found

    def forward(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        return energy_of(self.head(self.features(x)).squeeze(-1), self.positive)


class DcganDiscriminator(nn.Module):
    """Convolutions, for images of 28×28, 32×32 or 64×64 pixels in [0, 1] (B.8.1)."""

    def __init__(
        self, *, shape: tuple[int, ...], features: Count = 64, normalised: bool = True, positive: bool = False
    ):  # fmt: skip
        """Convolutions with leaky rectifiers, then one linear layer.

        Args:
            shape: Of one image.
            features: Channels of the first layer.
            normalised: Whether there is batch normalisation. With it, energies in training depend on the rest of their
                batch, and data and samples, which come in different ones, are each set to the same mean.
            positive: Energies above 0, by a softplus, as EBGAN needs them.
        """
        super().__init__()
        self.shape, self.positive = tuple(shape), positive
        self.layers = ConvolutionalEncoder(self.shape, features=features, normalised=normalised)
        self.width = self.layers.width
        self.head = nn.Linear(self.width, 1)
        initialise(self.head)

    def features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        found: Tensor = self.layers(of_points(x, PointSpace(self.shape)))
        return found

    def forward(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        return energy_of(self.head(self.features(x)).squeeze(-1), self.positive)


def energy_of(score: Float[Tensor, " batch"], positive: bool) -> Float[Tensor, " batch"]:
    """The last layer's number, or its softplus."""
    return F.softplus(score) if positive else score


# A line here puts a discriminator in the configuration and on the command line. `shape` is that of one x.
DISCRIMINATORS: Table[Any] = Table(
    "discriminator", {"mlp": MlpDiscriminator, "dcgan": DcganDiscriminator}, given=("shape",)
)
