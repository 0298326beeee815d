"""Metrics as lines of JSON, and where else they are shown.

`metrics.jsonl` holds only what is determined by configuration and seed. A checkpoint notes how many bytes of it
there were; resuming cuts it there, so that the file of a resumed run is that of an uninterrupted one. Times are
kept apart, in `timing.jsonl`.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ebar.errors import UserError
from ebar.store.writing import saving, to_json, write_all


@dataclass(frozen=True, slots=True)
class Lines:
    """A file of JSON lines, open for appending."""

    path: Path
    descriptor: int

    def write(self, record: Mapping[str, Any]) -> None:
        with saving(f"a line of {self.path}"):
            write_all(self.descriptor, to_json(dict(record)))

    def sync(self) -> int:
        """On the disk up to here; returns how many bytes that is."""
        with saving(str(self.path)):
            os.fsync(self.descriptor)
        return os.fstat(self.descriptor).st_size


@contextmanager
def opened_lines(path: Path, *, keep: int | None = None) -> Iterator[Lines]:
    """Opens for appending after the first `keep` bytes; None keeps all whole lines."""
    with saving(str(path)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        if os.path.isfile(path):
            size = os.fstat(descriptor).st_size
            if keep is None:
                keep = path.read_bytes().rfind(b"\n") + 1
            if keep > size:
                message = f"{path} holds {size} bytes where the checkpoint saw {keep}: metrics were lost"
                warnings.warn(message, RuntimeWarning, stacklevel=3)
            os.ftruncate(descriptor, min(keep, size))
        yield Lines(path, descriptor)
    finally:
        os.close(descriptor)


@runtime_checkable
class Sink(Protocol):
    """Where else metrics go as they come: a terminal, TensorBoard."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...


@dataclass(frozen=True, slots=True)
class Console:
    """A line on standard error for each record; drawn above a progress bar where there is one."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        from rich.console import Console as Terminal
        from rich.text import Text

        terminal = Terminal(file=sys.stderr)
        with terminal.capture() as captured:
            line = Text(f"step {step:>9,}", style="bold")
            for name, value in values.items():
                line.append(f"   {name} ", style="dim").append(f"{value:.5g}", style="not bold cyan")
            terminal.print(line)
        # Through sys.stderr, which a bar replaces by its own while it is drawn: rich would go round it.
        sys.stderr.write(captured.get())


@contextmanager
def tensorboard(folder: Path, *, step: int = 0) -> Iterator[Sink]:
    """TensorBoard's event files in `folder`; what they hold after `step` is superseded."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed: pip install 'ebar[log]'.") from error
    writer = SummaryWriter(str(folder), purge_step=step or None)

    class Events:
        def write(self, step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name.replace(".", "/"), value, step)

    try:
        yield Events()
    finally:
        writer.close()
