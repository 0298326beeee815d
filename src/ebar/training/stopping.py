"""When training stops: early, by a held-out value, or by SIGINT and SIGTERM, after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
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


class Stop:
    """Whether a signal has asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """A second SIGINT means at once."""
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Inside, the first SIGINT or SIGTERM only sets `requested`. Handlers are the main thread's: elsewhere, never."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
