"""What Training-1 gives: λ, how sure it is, and what to know before believing it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.models.tilted import Tilted
from ebar.types import Distribution, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """λ of P(x) = r(x)·exp⟨λ, φ(x)⟩ with E_p[φ] as wanted, by whichever method."""

    method: str
    names: tuple[str, ...]
    coefficients: Float[Tensor, " features"]  # λ, in float64
    covariance: Float[Tensor, "features features"] | None
    """Of λ, Monte-Carlo error and the data's together; None where a method knows none."""
    data_moments: tuple[float, ...]  # what E_p[φ] was to be
    model_moments: tuple[Estimate, ...]  # what it is
    base_moments: tuple[Estimate, ...]  # what it was before, under r
    distance: float  # ℓ1_mom, equation 6
    trace: tuple[float, ...] = ()  # ℓ1_mom after each iteration (newton) or epoch (rs, snis)
    effective_sample_size: float
    acceptance_rate: float | None = None  # of rejection, at the end
    log_z: Estimate
    draws: int  # from the proposal, in all
    seconds: float
    warnings: tuple[str, ...] = ()  # in plain words, each says what it means for λ
    intervals: tuple[Estimate, ...] = field(default=())  # of each λ; infinite where the data do not bound it
    monte_carlo_covariance: Float[Tensor, "features features"] | None = None  # the part of `covariance` from the draws
    data_covariance: Float[Tensor, "features features"] | None = None  # and from the data

    def energy(self, features: Features) -> Linear:
        """E = −⟨λ, φ⟩."""
        if tuple(features.names) != self.names:
            raise ValueError(f"λ is of the features {self.names}, not {tuple(features.names)}")
        return Linear(features, self.coefficients.clone())

    def tilted(self, base: Distribution, features: Features) -> Tilted:
        """P_λ itself, equation 4."""
        return Tilted(base, self.energy(features))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` reads it back."""
        return {
            "method": self.method,
            "names": list(self.names),
            "coefficients": self.coefficients.tolist(),
            "covariance": _listed(self.covariance),
            "monte_carlo_covariance": _listed(self.monte_carlo_covariance),
            "data_covariance": _listed(self.data_covariance),
            "data_moments": list(self.data_moments),
            "model_moments": [estimate._asdict() for estimate in self.model_moments],
            "base_moments": [estimate._asdict() for estimate in self.base_moments],
            "distance": self.distance,
            "trace": list(self.trace),
            "effective_sample_size": self.effective_sample_size,
            "acceptance_rate": self.acceptance_rate,
            "log_z": self.log_z._asdict(),
            "draws": self.draws,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "intervals": [estimate._asdict() for estimate in self.intervals],
        }

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> "Fitted":
        """What `to_dict` made, also after a trip through JSON, where infinities are strings."""
        return cls(
            method=tree["method"],
            names=tuple(tree["names"]),
            coefficients=torch.tensor([float(value) for value in tree["coefficients"]], dtype=torch.float64),
            covariance=_matrix(tree["covariance"]),
            monte_carlo_covariance=_matrix(tree.get("monte_carlo_covariance")),
            data_covariance=_matrix(tree.get("data_covariance")),
            data_moments=tuple(float(value) for value in tree["data_moments"]),
            model_moments=tuple(_estimate(one) for one in tree["model_moments"]),
            base_moments=tuple(_estimate(one) for one in tree["base_moments"]),
            distance=float(tree["distance"]),
            trace=tuple(float(value) for value in tree["trace"]),
            effective_sample_size=float(tree["effective_sample_size"]),
            acceptance_rate=None if tree["acceptance_rate"] is None else float(tree["acceptance_rate"]),
            log_z=_estimate(tree["log_z"]),
            draws=int(tree["draws"]),
            seconds=float(tree["seconds"]),
            warnings=tuple(tree["warnings"]),
            intervals=tuple(_estimate(one) for one in tree["intervals"]),
        )


def _estimate(tree: dict[str, Any]) -> Estimate:
    numbers: dict[str, Any] = {key: value if key == "warning" else float(value) for key, value in tree.items()}
    return Estimate(**numbers)


def _listed(matrix: Float[Tensor, "features features"] | None) -> list[list[float]] | None:
    return None if matrix is None else matrix.tolist()


def _matrix(rows: list[list[Any]] | None) -> Float[Tensor, "features features"] | None:
    if rows is None:
        return None
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)
