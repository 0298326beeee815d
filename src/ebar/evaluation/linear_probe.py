"""How much a linear classifier can tell from fixed features: what a network has learnt about classes unasked.

Table B.3 of Dai 2019 (thesis): the features are the last layer's activations of a discriminator. Features that tell
classes apart need not tell densities.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.errors import UserError
from ebar.evaluation.accuracy import error_rate
from ebar.modes import in_evaluation_mode
from ebar.types import Estimate

AT_ONCE = 500  # rows


class Labelled(NamedTuple):
    """Rows with their classes."""

    x: Float[Tensor, "rows ..."]
    labels: Int[Tensor, " rows"]


@torch.no_grad()
@in_evaluation_mode
def fixed_features(
    features: Callable[[Tensor], Tensor], x: Float[Tensor, "rows ..."]
) -> Float[Tensor, "rows features"]:
    """The features of all rows, in evaluation mode."""
    return torch.cat([features(part).flatten(1).float() for part in torch.split(x, AT_ONCE)])


def linear_probe(
    features: Callable[[Tensor], Tensor], train: Labelled, test: Labelled, *, epochs: int = 20, batch: int = 100,
    learning_rate: float = 1e-3, weight_decay: float = 1e-4, generator: Generator,
) -> Estimate:  # fmt: skip
    """The test error of a linear classifier on fixed features, trained by Adam on standardised ones.

    Standardising (by the mean and deviation of the training rows) is itself linear: it changes how fast the classifier
    learns, not what it could. The last epoch is measured, so that the test rows choose nothing. The interval is over
    test rows.
    """
    if len(train.labels) == 0 or len(test.labels) == 0:
        raise UserError("A linear probe needs labelled rows to learn from and others to be tested on.")
    known = fixed_features(features, train.x)
    mean, deviation = known.mean(0), known.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    known = (known - mean) / scale
    classes = int(train.labels.max()) + 1
    weights, bias = (torch.zeros(*shape, requires_grad=True) for shape in ((known.shape[1], classes), (classes,)))
    optimiser = torch.optim.AdamW([weights, bias], lr=learning_rate, weight_decay=weight_decay)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(known), generator=generator), batch):
                optimiser.zero_grad()
                loss = F.cross_entropy(known[rows] @ weights + bias, train.labels[rows].long())
                torch.autograd.backward(loss)
                optimiser.step()
    unseen = (fixed_features(features, test.x) - mean) / scale
    return error_rate((unseen @ weights.detach() + bias.detach()).argmax(1), test.labels.long())
