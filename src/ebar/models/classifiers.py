"""Classifiers whose logits are an energy: of K classes, E(x) = −log Σₖ exp logitₖ(x).

The class K + 1, "made by a generator", has the logit 0: P(y ≤ K | x) = σ(−E(x)). Dai et al. 2017b (arXiv:1705.09783),
after Salimans et al. 2016 (arXiv:1606.03498).

A classifier is a module with `shape` (of one x), `classes` and `width`; `features(x)` is what its last layer reads,
`logits(x)` what it makes of it. Rows of images are in [0, 1].
"""

import itertools
import math
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ebar.backbones.weight_normalised import convolution, dense, initialising, is_initialised
from ebar.bounds import Count, NonNegative, Share
from ebar.errors import UserError
from ebar.shapes import of_points
from ebar.tables import Table
from ebar.types import Context, PointSpace


@runtime_checkable
class Classifier(Protocol):
    """K logits, from features of x."""

    shape: tuple[int, ...]  # of one x
    classes: int
    width: int  # of the features

    def features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]: ...

    def logits(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]: ...

    def __call__(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        """The energy."""


def class_energy(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """−log Σₖ exp logitₖ."""
    return -logits.logsumexp(-1)


@torch.no_grad()
def initialise(classifier: Any, x: Float[Tensor, "batch ..."]) -> None:
    """Sets lengths and biases of weight-normalised layers from data, in training mode, once and never again.

    A classifier that has no such layers, or whose layers have been initialised or loaded, stays as it is.
    """
    if not is_initialised(classifier):
        mode = classifier.training
        classifier.train()
        with initialising(classifier):
            classifier.logits(x)
        classifier.train(mode)


class Noise(nn.Module):
    """Adds normal noise in training mode, from torch's own state as dropout does; nothing in evaluation mode."""

    def __init__(self, deviation: float):
        super().__init__()
        self.deviation = deviation

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.deviation == 0:
            return x
        return torch.add(x, torch.randn_like(x), alpha=self.deviation)

    def extra_repr(self) -> str:
        return str(self.deviation)


class ByFeatures(nn.Module):
    """A classifier whose last layer reads its features."""

    head: nn.Module
    features: Any  # x → the features that the last layer reads

    def logits(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
        found: Tensor = self.head(self.features(x))
        return found

    def forward(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        return class_energy(self.logits(x))


class MlpClassifier(ByFeatures):
    """Fully connected layers with weight normalisation and noise, as for MNIST in Salimans et al. 2016."""

    def __init__(
        self, *, shape: tuple[int, ...], classes: int, widths: tuple[Count, ...] = (1000, 500, 250, 250, 250),
        input_noise: NonNegative = 0.3, hidden_noise: NonNegative = 0.5, leak: NonNegative = 0.0,
    ):  # fmt: skip
        """Noise, then FC-ReLU-noise for each width, then FC(width, classes), where lengths of weights learn too.

        Args:
            shape: Of one x.
            classes: How many.
            widths: Units of each hidden layer.
            input_noise: Deviation of the noise added to x in training.
            hidden_noise: Of that added to what each hidden layer gives.
            leak: Slope of the rectifier below 0.
        """
        super().__init__()
        self.shape, self.classes, self.leak = tuple(shape), classes, leak
        sizes = [math.prod(self.shape), *widths]
        self.width = sizes[-1]
        self.layers = nn.ModuleList(dense(inputs, units) for inputs, units in itertools.pairwise(sizes))
        self.head = dense(self.width, classes, trainable=True)
        self.input_noise, self.hidden_noise = Noise(input_noise), Noise(hidden_noise)

    def features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        h: Tensor = self.input_noise(of_points(x, PointSpace(self.shape)).flatten(1))
        for layer in self.layers:
            h = layer(h)
            h = self.hidden_noise(F.leaky_relu(h, self.leak) if self.leak else F.relu(h))
        return h


class ConvolutionalClassifier(ByFeatures):
    """Nine convolutions with weight normalisation, as for SVHN and CIFAR-10 in Salimans et al. 2016."""

    def __init__(
        self, *, shape: tuple[int, ...], classes: int, filters: tuple[Count, Count] = (64, 128),
        input_noise: NonNegative = 0.05, input_dropout: Share = 0.15, dropout: Share = 0.5, spatial: bool = True,
        leak: NonNegative = 0.2,
    ):  # fmt: skip
        """Three 3×3 convolutions of the first width, three of the second, and one 3×3 and two 1×1 of it unpadded.

        The third and the sixth halve the size and have dropout after them; the mean over places is what the last layer
        reads. The defaults are those for SVHN in Dai et al. 2017b; for CIFAR-10 they have filters 96 and 192, 0.2 at
        the input, and dropout of single numbers rather than channels.

        Args:
            shape: Of one image.
            classes: How many.
            filters: Channels of the first three layers, and of the rest.
            input_noise: Deviation of the noise added to the image in training, whose values go from −1 to 1 inside.
            input_dropout: Share of the image's channels that are left out in training.
            dropout: The same after the third and the sixth layer.
            spatial: Whether that leaves out whole channels, or numbers.
            leak: Slope of the rectifier below 0.
        """
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < 9:
            raise UserError(f"Convolutions want images of 9×9 pixels or more, not data of {list(shape)}: choose mlp.")
        self.shape, self.classes = tuple(shape), classes
        few, many = filters
        self.width = many
        sizes = [(shape[0], few), (few, few), (few, few), (few, many), *[(many, many)] * 5]
        layers: list[nn.Module] = [Noise(input_noise), nn.Dropout2d(input_dropout)]
        for number, (inputs, units) in enumerate(sizes, 1):
            layers.append(
                convolution(
                    inputs, units, kernel=3 if number < 8 else 1, stride=2 if number in (3, 6) else 1,
                    padding=1 if number < 7 else 0,
                )
            )  # fmt: skip
            layers.append(nn.LeakyReLU(leak))
            if number in (3, 6):
                layers.append(nn.Dropout2d(dropout) if spatial else nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers)
        self.head = dense(many, classes, trainable=True, deviation=0.1)

    def features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        found: Tensor = self.layers(2 * of_points(x, PointSpace(self.shape)) - 1)
        return found.mean((2, 3))


# A line here puts a classifier in the configuration and on the command line. The data give `shape` and `classes`.
CLASSIFIERS: Table[Any] = Table(
    "classifier", {"mlp": MlpClassifier, "convolutional": ConvolutionalClassifier}, given=("shape", "classes")
)
