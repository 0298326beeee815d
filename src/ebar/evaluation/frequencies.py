"""How often features hold, and how long sequences are, in a set of independent sequences."""

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.moments import weighted_mean
from ebar.features.feature import Features
from ebar.maths.importance import unseen_side
from ebar.maths.proportions import wilson
from ebar.types import Context, Estimate, Sequences


@torch.no_grad()
def frequencies(
    x: Sequences, features: Features, *, context: Context | None = None, level: float = 0.95
) -> dict[str, Estimate]:
    """The mean of each feature over the sequences: Wilson's interval where it is 0 or 1, the jackknife's otherwise."""
    values = features(x, context).double()
    found = {}
    for feature, column in zip(features.features, values.unbind(1), strict=True):
        if bool(((column == 0) | (column == 1)).all()) and (feature.low, feature.high) == (0, 1):
            found[feature.name] = frequency(column, name=feature.name, level=level)
        else:
            found[feature.name] = weighted_mean(
                torch.zeros_like(column)[None], column[None],
                low=float(feature.low), high=float(feature.high), name=feature.name, level=level,
            )[0]  # fmt: skip
    return found


def frequency(holds: Float[Tensor, " batch"], *, name: str = "feature", level: float = 0.95) -> Estimate:
    """The share of ones among zeros and ones."""
    trials, successes = float(len(holds)), float(holds.sum())
    low, high = wilson(successes, trials, level)
    warning = unseen_side(name, float(holds.min()), float(holds.max()), 0.0, 1.0)
    return Estimate(successes / trials, low, high, trials, warning, level)


def mean_length(x: Sequences, *, level: float = 0.95) -> Estimate:
    """The mean number of tokens, the end included."""
    lengths = x.lengths.double()[None]
    return weighted_mean(torch.zeros_like(lengths), lengths, low=0.0, name="length", level=level)[0]
