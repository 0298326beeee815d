"""Early stopping, with plain values for a state."""

from dataclasses import dataclass
from typing import NamedTuple


class Best(NamedTuple):
    """The best held-out value so far."""

    value: float | None = None
    step: int | None = None  # when it was reached
    stale: int = 0  # evaluations since without a better one
    stale_in_all: int = 0  # evaluations without a better one since the very start

    def update(self, value: float, step: int, *, margin: float = 0.0) -> "Best":
        """Lower is better, and must be by more than `margin`. NaN is never better."""
        if value == value and (self.value is None or value < self.value - margin):
            return Best(value, step, 0, self.stale_in_all)
        return self._replace(stale=self.stale + 1, stale_in_all=self.stale_in_all + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Stop after `evaluations` without a better held-out value, in a row or (Parshakova et al. 2019's code) in all."""

    evaluations: int = 10
    margin: float = 0.0
    in_all: bool = False

    def exhausted(self, best: Best) -> bool:
        return (best.stale_in_all if self.in_all else best.stale) >= self.evaluations
