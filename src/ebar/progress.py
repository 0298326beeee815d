"""Progress with rate and time left, of the work at hand and of the whole journey: a bar, or a line every so often where
there is no terminal. Silent in a library, shown when the command line asks."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

EVERY = 30.0  # seconds between two lines, where there is no terminal

_shown: ContextVar[bool] = ContextVar("progress_shown", default=False)
_clock = time.monotonic


@contextmanager
def shown(visible: bool = True) -> Iterator[None]:
    """Bars opened inside are drawn on standard error."""
    token = _shown.set(visible)
    try:
        yield
    finally:
        _shown.reset(token)


def forecast(what: str, amount: int, trial: int, work: Callable[[int], object]) -> None:
    """Says how long so much work will take, from that much done on trial; where nothing is shown, nothing is done.

    A guess, and rather too long: a trial has smaller batches than the work itself.
    """
    if not _shown.get() or trial < 1:
        return
    began = _clock()
    work(trial)
    left = (_clock() - began) / trial * amount
    sys.stderr.write(f"{what}: about {_length(left)} for {amount:,}, to judge by a trial of {trial:,}\n")
    sys.stderr.flush()


@runtime_checkable
class Bar(Protocol):
    """What long work reports to."""

    def advance(self, amount: int) -> None: ...


class _Silent:
    def advance(self, amount: int) -> None:
        pass


class Journey:
    """Parts of a journey, each with its amount of work in whatever unit, as far as that is known beforehand.

    What is left takes as long as that much work has taken so far: a guess, and the better the further it is. A part
    that was done in an earlier call is passed at once, and counts for nothing.
    """

    def __init__(self, parts: Mapping[str, float]):
        self.left = dict(parts)
        self.done = 0.0
        self.seconds = 0.0
        self.work = 0.0  # of the part that is being done
        self.since = 0.0
        self.share = 0.0  # of it that is done
        self.open = 0  # bars: only the outermost speaks for the part

    def enter(self, name: str) -> None:
        """The part that is done from now on."""
        self.work, self.since, self.share = self.left.pop(name, 0.0), _clock(), 0.0

    def leave(self) -> None:
        """It is done, or was before."""
        if self.share > 0:
            self.done += self.work
            self.seconds += _clock() - self.since
        self.work = self.share = 0.0

    def seconds_left(self) -> float | None:
        """Of the whole; None while nothing is known, or nothing else is to come."""
        done = self.done + self.share * self.work
        if done <= 0:
            return None
        rest = (1 - self.share) * self.work + sum(self.left.values())
        return rest / done * (self.seconds + _clock() - self.since)


_journey: ContextVar[Journey | None] = ContextVar("journey", default=None)


@contextmanager
def journey(parts: Mapping[str, float]) -> Iterator[None]:
    """Bars inside tell the time left of all these parts together; one journey inside another is part of it."""
    if _journey.get() is not None:
        yield
        return
    token = _journey.set(Journey(parts))
    try:
        yield
    finally:
        _journey.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """The part of the journey that is done inside; nothing outside of a journey."""
    found = _journey.get()
    if found is None or name not in found.left:
        yield
        return
    found.enter(name)
    try:
        yield
    finally:
        found.leave()


@contextmanager
def bar(description: str, total: int | None, unit: str = "") -> Iterator[Bar]:
    """Report progress with `advance(amount)`; `total` None when the end is not known."""
    if not _shown.get():
        yield _Silent()
        return
    whole = _journey.get()
    own = whole if whole is not None and whole.open == 0 and whole.work > 0 else None
    if whole is not None:
        whole.open += 1
    draw = _drawn if sys.stderr.isatty() else _written
    try:
        with draw(description, total, unit, whole) as drawn:
            yield drawn if own is None or not total else _Counted(drawn, total, own)
    finally:
        if whole is not None:
            whole.open -= 1


class _Counted:
    """Tells the journey too."""

    def __init__(self, drawn: Bar, total: int, whole: Journey):
        self.drawn, self.total, self.whole = drawn, total, whole
        self.before = whole.share  # a part may have several bars: each takes its share of what is left of the part
        self.done = 0

    def advance(self, amount: int) -> None:
        self.done += amount
        self.whole.share = self.before + (1 - self.before) * min(1.0, self.done / self.total)
        self.drawn.advance(amount)


@contextmanager
def _written(description: str, total: int | None, unit: str, whole: Journey | None) -> Iterator[Bar]:
    """A line every so often, and one at the end."""
    began = _clock()

    class Lines:
        done, said = 0, began

        def advance(self, amount: int) -> None:
            self.done += amount
            if _clock() - self.said >= EVERY:
                self.said = _clock()
                self.say()

        def say(self, *, last: bool = False) -> None:
            seconds = _clock() - began
            rate = self.done / seconds if seconds > 0 else 0.0
            words = [f"{self.done:,}" + ("" if total is None else f"/{total:,}")]
            words.append(f"{rate:,.1f} {unit}/s" if rate else "–")
            words.append(f"{_length(seconds)} gone")
            if not last and total is not None and rate:
                words.append(f"{_length((total - self.done) / rate)} left")
            if not last and whole is not None and (left := whole.seconds_left()) is not None:
                words.append(f"of the whole about {_length(left)}")
            sys.stderr.write(f"{description}: {', '.join(words)}\n")
            sys.stderr.flush()

    lines = Lines()
    yield lines
    lines.say(last=True)


def _length(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@contextmanager
def _drawn(description: str, total: int | None, unit: str, whole: Journey | None) -> Iterator[Bar]:
    """A bar on a terminal."""
    import random

    state = random.getstate()
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    # rich draws one of Python's own random numbers when it is first imported: a resumed run would be one ahead.
    random.setstate(state)

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("–" if not task.speed else f"{task.speed:,.1f} {unit}/s")

    class Whole(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = None if whole is None else whole.seconds_left()
            return Text("" if left is None else f"whole about {_length(left)}", style="progress.remaining")

    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + ("" if total is None else "/{task.total:,.0f}")),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        *([] if whole is None else [Whole()]),
    ]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)

        class Drawn:
            def advance(self, amount: int) -> None:
                progress.advance(task, amount)

        yield Drawn()
