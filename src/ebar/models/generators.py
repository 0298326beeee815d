"""Implicit generators: noise → x. They can sample, and have no log_prob.

A generator is a module with `latent`, `law` and `shape`; `forward(noise)` gives one x for each row of noise.

The complement generator of the plane: everything in a box that is not on the manifold, equally likely.
"""

import itertools
import math
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.backbones.dcgan import ConvolutionalDecoder
from ebar.backbones.dense import dense_layers, normal_layer
from ebar.backbones.weight_normalised import dense as weight_normalised
from ebar.backbones.weight_normalised import initialising, transposed_convolution
from ebar.bounds import Amount, Count, Natural, NonNegative
from ebar.errors import UserError
from ebar.maths.manifolds import MANIFOLDS
from ebar.maths.randomness import Law, default_generator, draw_noise
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


@runtime_checkable
class StartsFromData(Protocol):
    """A generator some of whose first weights come from data, once: not again when training is resumed."""

    def start_from(self, x: Float[Tensor, "batch ..."]) -> None: ...


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


class FromNoise(nn.Module):
    """A network that draws by what it makes of noise."""

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n ..."]:  # fmt: skip
        return sample_generator(self, n, context, generator=generator)


class MlpGenerator(FromNoise):
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


class DcganGenerator(FromNoise):
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


class SoftplusGenerator(FromNoise):
    """Layers with batch normalisation and softplus, as for MNIST in Salimans et al. 2016: x in [0, 1]."""

    def __init__(
        self, *, shape: tuple[int, ...], latent: Count = 100, law: Law = "uniform",
        widths: tuple[Count, ...] = (500, 500), from_mean: bool = True,
    ):  # fmt: skip
        """FC-BN-softplus for each width, then a weight-normalised FC(width, shape) and a sigmoid.

        Args:
            shape: Of one x.
            latent: Numbers of noise that a sample is made from.
            law: Of the noise.
            widths: Units of each hidden layer.
            from_mean: Whether it starts from the mean image, where data are given to start from; the papers do not.
        """
        super().__init__()
        self.shape, self.latent, self.law, self.from_mean = tuple(shape), latent, law, from_mean
        parts: list[nn.Module] = []
        for inputs, units in itertools.pairwise((latent, *widths)):
            # Batch normalisation takes away what a bias adds.
            parts += [nn.Linear(inputs, units, bias=False), nn.BatchNorm1d(units), nn.Softplus()]
        last = (latent, *widths)[-1]
        self.last = weight_normalised(last, math.prod(self.shape), trainable=True)
        self.layers = nn.Sequential(*parts)

    @torch.no_grad()
    def start_from(self, x: Float[Tensor, "batch ..."]) -> None:
        """Biases of the last layer become logits of the mean image, no nearer to 0 and 1 than 0.01.

        Adam moves a bias by the learning rate at most, so that dark margins would take thousands of steps.
        """
        if self.from_mean:
            self.last.bias.copy_(x.mean(0).flatten().clamp(0.01, 0.99).logit())

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows ..."]:
        made: Tensor = self.last(self.layers(noise)).sigmoid()
        return made.view(len(noise), *self.shape)


class UpsamplingGenerator(FromNoise):
    """Transposed convolutions of 5×5, as for SVHN and CIFAR-10 in Salimans et al. 2016; x in [0, 1]."""

    def __init__(self, *, shape: tuple[int, ...], latent: Count = 100, law: Law = "uniform", channels: Count = 512):
        """FC-BN-ReLU to the first channels, then layers of twice the size and half the channels up to the image.

        All but the last have batch normalisation and a rectifier; that one has weight normalisation and a tanh, for
        images from −1 to 1 inside. Images of 32×32 pixels begin as 4×4.

        Args:
            shape: Of one image.
            latent: Numbers of noise that an image is made from.
            law: Of the noise.
            channels: What noise becomes first.
        """
        super().__init__()
        self.shape, self.latent, self.law = tuple(shape), latent, law
        if len(self.shape) != 3 or self.shape[1] % 4 or self.shape[2] % 4:
            size = "×".join(map(str, self.shape[1:] or self.shape))
            raise UserError(f"The generator doubles images in size and cannot make {size}: give multiples of 4 pixels.")
        doublings = 2 if self.shape[1] % 8 or self.shape[2] % 8 else 3
        height, width = (size >> doublings for size in self.shape[1:])
        widths = [max(1, channels >> number) for number in range(doublings)]
        parts: list[nn.Module] = [nn.Linear(latent, channels * height * width, bias=False)]
        parts += [nn.BatchNorm1d(channels * height * width), nn.ReLU(), nn.Unflatten(1, (channels, height, width))]
        for inputs, units in itertools.pairwise(widths):
            parts.append(nn.ConvTranspose2d(inputs, units, 5, stride=2, padding=2, output_padding=1, bias=False))
            parts += [nn.BatchNorm2d(units), nn.ReLU()]
        last = transposed_convolution(widths[-1], self.shape[0], trainable=True, deviation=0.1)
        self.layers = nn.Sequential(*parts, last, nn.Tanh())

    @torch.no_grad()
    def start_from(self, x: Float[Tensor, "batch channels height width"]) -> None:
        """Length and bias of the last layer from a pass of noise, of as many rows as x, by torch's own state."""
        noise = draw_noise(len(x), self.latent, self.law, generator=default_generator()).to(x)
        with initialising(self):
            self(noise)

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows channels height width"]:
        made: Tensor = (self.layers(noise) + 1) / 2
        return made


# A line here puts a generator in the configuration and on the command line. `shape` is that of one x.
GENERATORS: Table[Any] = Table(
    "generator",
    {"mlp": MlpGenerator, "dcgan": DcganGenerator, "softplus": SoftplusGenerator, "upsampling": UpsamplingGenerator},
    given=("shape",),
)


class ComplementGenerator(nn.Module):
    """Uniform on a box around the data, those on the manifold left out. Nothing in it learns."""

    law: ClassVar[Law] = "uniform"
    low: Tensor
    high: Tensor

    def __init__(
        self, *, shape: tuple[int, ...], manifold: str = "four_spins", tries: Count = 8, margin: NonNegative = 0.25
    ):
        """Noise is `tries` points of the box, of which a sample is the first that is not on the manifold.

        Where all of them are, it is the last; of 8 that happens less than once in a million. Dai 2019 (thesis), C.4.

        Args:
            shape: Of one x, which is a point of the plane.
            manifold: By name, what is left out.
            tries: Points of the box that a sample is chosen from.
            margin: By how much the box is larger than the curves, in half of its side.
        """
        super().__init__()
        if tuple(shape) != (2,):
            raise UserError("The complement of a manifold of the plane has points of 2 numbers: give such data.")
        self.shape, self.latent, self.tries = (2,), 2 * tries, tries
        self.manifold = MANIFOLDS.choose(manifold)()
        low, high = self.manifold.box(margin)
        self.register_buffer("low", low.to(torch.get_default_dtype()))
        self.register_buffer("high", high.to(torch.get_default_dtype()))

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows 2"]:
        points = torch.lerp(self.low, self.high, noise.view(len(noise), self.tries, 2))
        chosen, left = points[:, 0].clone(), torch.arange(len(points))
        for number in range(1, self.tries):
            left = left[(self.manifold.distances(chosen[left]) <= self.manifold.width).any(1)]
            if len(left) == 0:
                break
            chosen[left] = points[left, number]
        return chosen

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n 2"]:  # fmt: skip
        if context is not None:
            raise UserError("A generator of points has no context: leave it out.")
        return self.forward(draw_noise(n, self.latent, self.law, generator=generator).to(self.low))
