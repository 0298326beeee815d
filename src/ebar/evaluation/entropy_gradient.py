"""How well nearest neighbours tell the gradient of an entropy: against the analytic one, on a Gaussian.

For x ~ N(0, σ²·I) the gradient of log p is −x/σ², so that the mean cosine between the estimate and it is known for any
number of neighbours, batch and dimension. Near the mode the gradient is short and its direction noise, so the points
with |x| > σ have a figure of their own. Figure B.8 of Dai et al. 2017a shows such gradients on a mixture.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.bounds import Count
from ebar.evaluation.means import plain_mean
from ebar.objectives.entropy_terms import Form, density_gradients
from ebar.types import Estimate


class GradientQuality(NamedTuple):
    """Means over points of independent batches; intervals are over the batches."""

    everywhere: Estimate  # cosine with the analytic gradient
    outside: Estimate  # the same, over points with |x| > σ
    length: Estimate  # mean of (estimate · gradient)/|gradient|² over the latter: 1 where the length is right too


def entropy_gradient_quality(
    *, neighbours: int = 50, batch: int = 500, dimensions: int = 2, form: Form = "variance", deviation: float = 1.0,
    repeats: Count = 20, generator: Generator,
) -> GradientQuality:  # fmt: skip
    """The mean cosine between the estimated and the analytic gradient of log p, on batches of a Gaussian."""
    figures = []
    for _ in range(repeats):
        x = deviation * torch.randn(batch, dimensions, dtype=torch.float64, generator=generator)
        figures.append(_figures(x, density_gradients(x, neighbours=neighbours, form=form), deviation))
    columns = torch.stack(figures).T
    named = zip(GradientQuality._fields, columns, strict=True)
    return GradientQuality(*(plain_mean(column, name=name, batches=True) for name, column in named))


def _figures(
    x: Float[Tensor, "batch dimensions"], found: Float[Tensor, "batch dimensions"], deviation: float
) -> Float[Tensor, "3"]:
    """Of one batch: the cosine over all points, over those outside, and the length over those."""
    true = -x / deviation**2
    cosine = F.cosine_similarity(found, true, dim=1)
    outside = x.norm(dim=1) > deviation
    length = (found * true).sum(1) / true.square().sum(1)
    return torch.stack([cosine.mean(), cosine[outside].mean(), length[outside].mean()])
