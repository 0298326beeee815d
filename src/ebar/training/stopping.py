"""When training stops: early, by a held-out value, or by SIGINT and SIGTERM, after the current step."""

import signal
import threading
from collections.abc import Iterator, Sequence
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
    history: tuple[float, ...] = ()  # the values themselves, where the rule for stopping asks for them

    def update(self, value: float, step: int, *, margin: float = 0.0, remember: bool = False) -> "Best":
        """Lower is better, and must be by more than `margin`. NaN is never better."""
        history = (*self.history, value) if remember else self.history
        if value == value and (self.value is None or value < self.value - margin):
            return Best(value, step, 0, self.stale_in_all, history)
        return self._replace(stale=self.stale + 1, stale_in_all=self.stale_in_all + 1, history=history)


def no_longer_improves(losses: Sequence[float], excluding: int) -> bool:
    """Whether the last loss is above the best of those before it, the `excluding` latest of these left out.

    It needs more than `excluding` losses before the last one. Merity et al. 2018, algorithm 1, with their code's
    order: the last loss is compared before it joins the others. NaN is never the best, nor above it.
    """
    *before, last = losses
    old = [loss for loss in before[: len(before) - excluding] if loss == loss] if len(before) > excluding else []
    return bool(old) and last > min(old)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Stop after `evaluations` without a better held-out value, in a row or (Parshakova et al. 2019's code) in all."""

    evaluations: int = 10
    margin: float = 0.0
    in_all: bool = False
    excluding: int | None = None
    """Stop also where the held-out value is above the best of all but the last so many (`no_longer_improves`)."""

    def exhausted(self, best: Best) -> bool:
        if self.excluding is not None and best.history and no_longer_improves(best.history, self.excluding):
            return True
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
