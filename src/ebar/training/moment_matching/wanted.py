"""The moments that P_λ is to have: those of data, or given."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.shapes import of_shape
from ebar.types import Sequences

PRIOR = 10.0  # standard deviation of the Gaussian prior on each λ, where no ridge is given
AS_IF = 1_000_000  # data, that moments given without data are taken to come from


class Wanted(NamedTuple):
    """E[φ] as it should be, with what is known of its error."""

    moments: Float[Tensor, " features"]
    size: int | None  # of the data, None where moments were given
    values: Float[Tensor, "data features"] | None  # φ of the data

    def default_ridge(self) -> float:
        """A prior N(0, 10²) on each λ: ρ = 1/(10²·|D|), as the likelihood here is a mean over D."""
        return 1 / (PRIOR**2 * (self.size or AS_IF))

    def spread(self, features: Features) -> Float[Tensor, " features"]:
        """The standard deviation of each feature: the data's, or the largest that the moment given allows."""
        if self.values is not None:
            return self.values.std(0, unbiased=False)
        low = torch.tensor([float(feature.low) for feature in features.features], dtype=torch.float64)
        high = torch.tensor([float(feature.high) for feature in features.features], dtype=torch.float64)
        return ((self.moments - low) * (high - self.moments)).sqrt()

    def constant(self, column: int) -> bool:
        """Whether a feature is the same in all data."""
        return self.values is not None and bool((self.values[:, column] == self.values[0, column]).all())


@torch.no_grad()
def wanted_moments(features: Features, data: Sequences | None, moments: Float[Tensor, " features"] | None) -> Wanted:
    """φ̄ of the data (equation 5's left moment), or the moments given: one of the two."""
    if len(features) == 0:
        raise UserError("There is no feature to match: give at least one.")
    if (data is None) == (moments is None):
        raise UserError("Give either data or moments to match, not both and not neither.")
    if data is not None:
        if len(data.lengths) == 0:
            raise UserError("There are no data to take moments of: give at least one sequence.")
        values = features(data).double().cpu()
        return Wanted(values.mean(0), len(values), values)
    assert moments is not None
    given = moments.double().cpu()
    if len(given) != len(features):
        raise UserError(f"There are {len(features)} features and {len(given)} moments: give one for each.")
    of_shape(given, (len(features),), "The moments, one for each feature,")
    for feature, moment in zip(features.features, given.tolist(), strict=True):
        if not feature.low <= moment <= feature.high:
            raise UserError(
                f"No model has a mean of {moment:g} for {feature.name!r}, which lies between {feature.low:g} and "
                f"{feature.high:g}: give a moment in that range."
            )
    return Wanted(given, None, None)
