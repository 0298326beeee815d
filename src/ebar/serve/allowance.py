"""What a request may still spend, time and memory, and how it is stopped."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ebar.errors import UserError

SMALLER = "ask for fewer draws or shorter texts"


class StoppedError(Exception):
    """The request was stopped by whoever made it: there is nobody to tell."""


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say (it does on Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Bytes of this process, without the models that were opened since the meter was made."""

    def __init__(self, resident: Callable[[], int] = resident):
        self._resident = resident
        self._models = 0
        self._held: int | None = None  # what is read while a model is being opened

    def read(self) -> int:
        """Now."""
        held = self._held
        return self._resident() - self._models if held is None else held

    @contextmanager
    def opening(self) -> Iterator[None]:
        """What is taken in here is a model's. One at a time."""
        before = self._resident()
        self._held = before - self._models
        try:
            yield
        finally:
            self._models += self._resident() - before
            self._held = None


class Allowance:
    """Whoever computes asks; whoever made the request may stop it from outside."""

    def __init__(
        self,
        seconds: float,
        *,
        megabytes: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        meter: Meter | None = None,
    ):
        self.seconds, self.megabytes, self.clock, self.meter = seconds, megabytes, clock, meter or Meter()
        self._stopped = threading.Event()
        self.renew()

    def renew(self) -> None:
        """Time and memory are counted from now on; who was stopped stays so."""
        self.end, self.at_first = self.clock() + self.seconds, self.meter.read()

    def stop(self) -> None:
        """From any thread: the next question is answered by an error."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def check_stop(self) -> None:
        """Goes on unless it was stopped, for who waits and spends nothing."""
        if self.stopped:
            raise StoppedError

    def check(self, way_out: str = SMALLER) -> None:
        """Goes on, or raises."""
        self.check_stop()
        if self.clock() > self.end:
            raise UserError(f"This took more than {self.seconds:g} seconds and was ended: {way_out}.")
        if self.meter.read() - self.at_first > self.megabytes * 2**20:
            raise UserError(f"This took more than {self.megabytes:g} megabytes of memory and was ended: {way_out}.")
