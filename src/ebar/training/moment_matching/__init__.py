"""Training-1 of document 000: λ such that P_λ = r·exp⟨λ, φ⟩ has the moments of the data, or those given."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.training.moment_matching.first_order import ImportanceMoments, RejectionMoments, Schedule
from ebar.training.moment_matching.fitted import Fitted
from ebar.training.moment_matching.newton import Newton
from ebar.types import Distribution, Sequences


@runtime_checkable
class Matching(Protocol):
    """A way of finding λ."""

    def fit(
        self,
        base: Distribution,
        features: Features,
        *,
        data: Sequences | None = None,
        moments: Float[Tensor, " features"] | None = None,
        proposal: Distribution | None = None,
        generator: Generator,
    ) -> Fitted:
        """Give data or moments, one of the two."""
        ...


MATCHING: dict[str, type[Matching]] = {"newton": Newton, "rs": RejectionMoments, "snis": ImportanceMoments}


def match_moments(
    base: Distribution,
    features: Features,
    *,
    data: Sequences | None = None,
    moments: Float[Tensor, " features"] | None = None,
    method: Matching = Newton(),  # noqa: B008 — immutable
    proposal: Distribution | None = None,
    generator: Generator,
) -> Fitted:
    """λ by the method given: Newton's, unless told otherwise."""
    return method.fit(base, features, data=data, moments=moments, proposal=proposal, generator=generator)


__all__ = [
    "MATCHING",
    "Fitted",
    "ImportanceMoments",
    "Matching",
    "Newton",
    "RejectionMoments",
    "Schedule",
    "match_moments",
]
