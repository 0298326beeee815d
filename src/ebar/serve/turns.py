"""Whose turn it is: a few requests are computed at a time, some wait in a line, and all others are refused."""

import threading
from collections.abc import Iterator

from ebar.errors import UserError
from ebar.serve.allowance import Allowance
from ebar.serve.found import Progress

LOOK = 1.0  # seconds between two looks at the line, for whoever waits


class Turns:
    """A line of requests: the first `at_once` of it are computed."""

    def __init__(self, at_once: int, waiting: int):
        self.at_once, self.waiting = at_once, waiting
        self._line: list[Allowance] = []
        self._moved = threading.Condition()

    def wait(self, allowance: Allowance) -> Iterator[Progress]:
        """Ends as its turn comes; raises where the line is full, or once the request is stopped."""
        with self._moved:
            if len(self._line) >= self.at_once + self.waiting:
                raise UserError(f"The line is full ({self.waiting} waiting): try again in a minute.")
            self._line.append(allowance)
        while before := self._before(allowance):
            yield Progress(f"waiting, {before} before this one")
            with self._moved:
                self._moved.wait(LOOK)
            allowance.check_stop()

    def leave(self, allowance: Allowance) -> None:
        """From any place in the line, or from outside it."""
        with self._moved:
            if allowance in self._line:
                self._line.remove(allowance)
                self._moved.notify_all()

    def notice(self) -> None:
        """Whoever waits looks now: somebody was stopped."""
        with self._moved:
            self._moved.notify_all()

    def _before(self, allowance: Allowance) -> int:
        """How many must end before this one begins."""
        with self._moved:
            return max(0, self._line.index(allowance) + 1 - self.at_once)
