"""Progress bars with rate and time left. Silent in a library, shown when the command line asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_shown: ContextVar[bool] = ContextVar("progress_shown", default=False)


@contextmanager
def shown(visible: bool = True) -> Iterator[None]:
    """Bars opened inside are drawn on standard error."""
    token = _shown.set(visible)
    try:
        yield
    finally:
        _shown.reset(token)


class Bar(Protocol):
    """What long work reports to."""

    def advance(self, amount: int) -> None: ...


class _Silent:
    def advance(self, amount: int) -> None:
        pass


@contextmanager
def bar(description: str, total: int | None, unit: str = "") -> Iterator[Bar]:
    """Report progress with `advance(amount)`; `total` None when the end is not known."""
    if not _shown.get():
        yield _Silent()
        return
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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + ("" if total is None else "/{task.total:,.0f}")),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)

        class _Drawn:
            def advance(self, amount: int) -> None:
                progress.advance(task, amount)

        yield _Drawn()
