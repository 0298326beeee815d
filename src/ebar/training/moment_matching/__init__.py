"""Moment matching: λ such that P_λ = r·exp⟨λ, φ⟩ has the moments of the data, or those given.

Training-1 of Parshakova et al. 2019, by their two methods or by Newton's.
"""

from jaxtyping import Float
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.tables import Table
from ebar.training.moment_matching.first_order import ImportanceMoments, RejectionMoments
from ebar.training.moment_matching.matching import Fitted, Matching
from ebar.training.moment_matching.newton import Newton
from ebar.types import Distribution, Sequences

MATCHING: Table[type[Matching]] = Table(
    "matching", {"newton": Newton, "rs": RejectionMoments, "snis": ImportanceMoments}
)


def match_moments(
    base: Distribution,
    features: Features,
    *,
    method: Matching = Newton(),  # noqa: B008 — immutable
    data: Sequences | None = None,
    moments: Float[Tensor, " features"] | None = None,
    proposal: Distribution | None = None,
    generator: Generator,
) -> Fitted:
    """λ by the method given, Newton's by default; see `Matching.fit`."""
    return method.fit(base, features, data=data, moments=moments, proposal=proposal, generator=generator)
