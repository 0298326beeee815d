"""What an energy or a proposal may know beyond its contract, and what a sampler then makes of it."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from ebar.types import Target


@runtime_checkable
class Bounded(Protocol):
    """An energy with a known floor: −E(x, C) ≤ log_bound for every x and C."""

    def log_bound(self) -> float: ...


@runtime_checkable
class RatioBounded(Protocol):
    """A proposal that knows how far above it a target can rise: log P(x|C) − log proposal(x|C) ≤ bound."""

    def log_ratio_bound(self, target: Target) -> float | None:
        """None where it does not know."""
        ...


@runtime_checkable
class Foresighted(Protocol):
    """A stepwise proposal that guesses from a prefix what the finished sequence's importance weight will be."""

    def expected_log_weight(self, state: Any) -> Float[Tensor, " rows"]:
        """log [base(x≤t) · ψ(x≤t) / proposal(x≤t)], where ψ guesses E_base[exp(−E) | x≤t].

        Any finite guess keeps sequential Monte Carlo exact; −inf only where no continuation has P > 0.
        """
        ...
