"""Implicit generators: noise → x. They can sample, and have no log_prob.

A generator is a module with `latent`, `law` and `shape`; `forward(noise)` gives one x for each row of noise.
"""

import itertools
import math
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.backbones.dcgan import ConvolutionalDecoder
from ebar.backbones.dense import dense_layers, normal_layer
from ebar.backbones.weight_normalised import dense as weight_normalised
from ebar.bounds import Amount, Count, Natural
from ebar.errors import UserError
from ebar.maths.randomness import Law, draw_noise
from ebar.modes import evaluation_mode
from ebar.tables import Table
from ebar.types import Context

ROWS = 4096  # drawn at a time


@runtime_checkable
class ImplicitGenerator(Protocol):
    """Turns noise into points or images."""

    latent: int  # numbers of noise in a row
    law: Law
    shape: tuple[int, ...]  # of one x

    def __call__(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows ..."]: ...


def sample_generator(
    model: Any, n: int, context: Context | None = None, *, generator: Generator
) -> Float[Tensor, "n ..."]:
    """n draws in evaluation mode without gradient: batch normalisation then uses its running averages."""
    if context is not None:
        raise UserError("A generator of points or images has no context: leave it out.")
    weight = next(model.parameters())
    drawn = []
    with torch.no_grad(), evaluation_mode(model):
        for start in range(0, max(n, 1), ROWS):
            noise = draw_noise(min(ROWS, n - start), model.latent, model.law, generator=generator)
            drawn.append(model(noise.to(weight)))
    return torch.cat(drawn)


class MlpGenerator(nn.Module):
    """Fully connected layers with batch normalisation, as for the points of Dai et al. 2017a (B.8.1)."""

    def __init__(
        self, *, shape: tuple[int, ...], latent: Count = 4, law: Law = "normal", hidden: Count = 128,
        layers: Natural = 2, normalised: bool = True, deviation: Amount = 0.001,
    ):  # fmt: skip
        """FC(latent, hidden)-BN-ReLU, `layers` of them, then FC(hidden, shape).

        Args:
            shape: Of one x.
            latent: Numbers of noise that a sample is made from.
            law: Of the noise.
            hidden: Units of a layer.
            layers: Hidden ones.
            normalised: Whether there is batch normalisation.
            deviation: Of the first weights, which are normal; biases are 0. The public code has 0.001 for mixtures of
                few Gaussians and 0.01 for spirals.
        """
        super().__init__()
        self.shape, self.latent, self.law = tuple(shape), latent, law
        parts = dense_layers(latent, hidden, layers, deviation=deviation, normalised=normalised)
        last = nn.Linear(hidden if layers else latent, math.prod(self.shape))
        self.layers = nn.Sequential(*parts, normal_layer(last, deviation))

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows ..."]:
        made: Tensor = self.layers(noise)
        return made.view(len(noise), *self.shape)

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n ..."]:  # fmt: skip
        return sample_generator(self, n, context, generator=generator)


class DcganGenerator(nn.Module):
    """Transposed convolutions, for images of 28×28, 32×32 or 64×64 pixels in [0, 1] (B.8.1)."""

    def __init__(self, *, shape: tuple[int, ...], latent: Count = 10, law: Law = "normal", features: Count = 64):
        """A linear layer, then transposed convolutions with batch normalisation and rectifiers.

        Args:
            shape: Of one image.
            latent: Numbers of noise that an image is made from.
            law: Of the noise.
            features: An eighth of the channels that noise becomes first.
        """
        super().__init__()
        self.shape, self.latent, self.law = tuple(shape), latent, law
        self.layers = ConvolutionalDecoder(latent, self.shape, features=features)

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows channels height width"]:
        made: Tensor = self.layers(noise)
        return made

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n channels height width"]:  # fmt: skip
        return sample_generator(self, n, context, generator=generator)


class SoftplusGenerator(nn.Module):
    """Layers with batch normalisation and softplus, as for MNIST in Salimans et al. 2016: x in [0, 1]."""

    def __init__(
        self, *, shape: tuple[int, ...], latent: Count = 100, law: Law = "uniform",
        widths: tuple[Count, ...] = (500, 500),
    ):  # fmt: skip
        """FC-BN-softplus for each width, then a weight-normalised FC(width, shape) and a sigmoid.

        Args:
            shape: Of one x.
            latent: Numbers of noise that a sample is made from.
            law: Of the noise.
            widths: Units of each hidden layer.
        """
        super().__init__()
        self.shape, self.latent, self.law = tuple(shape), latent, law
        parts: list[nn.Module] = []
        for inputs, units in itertools.pairwise((latent, *widths)):
            # Batch normalisation takes away what a bias adds.
            parts += [nn.Linear(inputs, units, bias=False), nn.BatchNorm1d(units), nn.Softplus()]
        last = (latent, *widths)[-1]
        self.layers = nn.Sequential(
            *parts, weight_normalised(last, math.prod(self.shape), trainable=True), nn.Sigmoid()
        )

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows ..."]:
        made: Tensor = self.layers(noise)
        return made.view(len(noise), *self.shape)

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n ..."]:  # fmt: skip
        return sample_generator(self, n, context, generator=generator)


# A line here puts a generator in the configuration and on the command line. `shape` is that of one x.
GENERATORS: Table[Any] = Table(
    "generator", {"mlp": MlpGenerator, "softplus": SoftplusGenerator, "dcgan": DcganGenerator}, given=("shape",)
)
