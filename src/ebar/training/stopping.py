"""Early stopping, with plain values for a state."""

from dataclasses import dataclass
from typing import NamedTuple


class Best(NamedTuple):
    """The best held-out value so far."""

    value: float | None = None
    step: int | None = None  # when it was reached
    stale: int = 0  # evaluations since without a better one

    def update(self, value: float, step: int, *, margin: float = 0.0) -> "Best":
        """Lower is better, and must be by more than `margin`. NaN is never better."""
        if value == value and (self.value is None or value < self.value - margin):
            return Best(value, step)
        return self._replace(stale=self.stale + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Stop after `evaluations` in a row without a better held-out value."""

    evaluations: int = 10
    margin: float = 0.0

    def exhausted(self, best: Best) -> bool:
        return best.stale >= self.evaluations
