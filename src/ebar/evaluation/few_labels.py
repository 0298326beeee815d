"""What a classifier of K + 1 classes is worth: its error, and how far the assumption of its theory holds.

Assumption 1 of Dai et al. 2017b: the largest of the K logits is above 0 on data and below 0 on generated samples, whose
class has the logit 0. The document counts both shares (Figure C.6).
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.data.labelled_images import as_numbers
from ebar.errors import UserError
from ebar.evaluation.accuracy import error_rate
from ebar.evaluation.means import plain_share
from ebar.modes import evaluation_mode
from ebar.types import Estimate

ROWS = 1000  # computed together


def class_logits(classifier: Any, x: Tensor) -> Float[Tensor, "batch classes"]:
    """Of all examples, in evaluation mode without gradient. x may be the bytes of images."""
    weight = next(classifier.parameters())
    with torch.no_grad(), evaluation_mode(classifier):
        parts = [classifier.logits(as_numbers(part).to(weight)) for part in torch.split(x, ROWS)]
    return torch.cat(parts).cpu()


def true_share(logits: Float[Tensor, "batch classes"]) -> Estimate:
    """The share of examples whose largest logit is above 0."""
    return _share(logits.amax(-1) > 0)


def fake_share(logits: Float[Tensor, "batch classes"]) -> Estimate:
    """The share of generated samples whose largest logit is below 0."""
    return _share(logits.amax(-1) < 0)


def few_label_figures(
    classifier: Any, x: Tensor, labels: Int[Tensor, " batch"], *, maker: Any = None, samples: int = 1000, seed: int = 0
) -> dict[str, Estimate]:
    """Error and both shares of Assumption 1, each with its interval over examples; the second needs a generator."""
    logits = class_logits(classifier, x)
    found = {"error": error_rate(logits.argmax(-1), labels), "true_share": true_share(logits)}
    if maker is not None:
        device = next(classifier.parameters()).device  # a complement generator has no parameters
        made = maker.sample(samples, generator=Generator(device).manual_seed(seed))
        found["fake_share"] = fake_share(class_logits(classifier, made))
    return found


def density_centile(log_density: Any, x: Tensor, centile: float, *, rows: int = 50) -> float:
    """The centile of the log-densities of examples, in batches of `rows`: log ε of the low-density term."""
    if len(x) == 0:
        raise UserError("There is no image to find the threshold of densities with.")
    return float(torch.quantile(log_densities(log_density, x, rows=rows).double(), centile / 100))


def log_densities(log_density: Any, x: Tensor, *, rows: int = 50) -> Float[Tensor, " batch"]:
    """Of all examples, in evaluation mode without gradient."""
    with torch.no_grad(), evaluation_mode(log_density):
        return torch.cat([log_density(as_numbers(part)).cpu() for part in torch.split(x, rows)])


def _share(which: Bool[Tensor, " batch"]) -> Estimate:
    if len(which) == 0:
        raise UserError("There are no examples to count: give one at least.")
    return plain_share(float(which.sum()), float(len(which)))
