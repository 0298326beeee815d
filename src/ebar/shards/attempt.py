"""What a worker does: one shard, of which the result or what went wrong travels back."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ebar.errors import UserError
from ebar.shards.workers import on_threads
from ebar.tables import import_plug_ins

# As torch, an accelerator, C++, the system and oneDNN say it.
NO_MEMORY = (
    "can't allocate memory", "out of memory", "bad_alloc", "cannot allocate memory", "could not create a primitive",
)  # fmt: skip


class Setting(NamedTuple):
    """What a process computes under, wherever it is."""

    threads: int
    dtype: torch.dtype  # of tensors where nothing is said
    plug_ins: str  # EBAR_PLUGINS


class Outcome(NamedTuple):
    """Of one shard. As text where it failed: not every exception can travel between processes."""

    made: Any = None
    failure: str = ""
    trace: str = ""  # empty where the user can mend it

    def value(self) -> Any:
        """The result, or the error."""
        if not self.failure:
            return self.made
        if not self.trace:
            raise UserError(self.failure)
        error = RuntimeError(f"A shard failed: {self.failure}")
        error.add_note(self.trace)
        raise error


def attempt(work: Callable[[Any, Any], Any], common: Any, job: Any, setting: Setting) -> Outcome:
    """One shard in a process of its own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(setting.dtype)
    try:
        with on_threads(setting.threads):
            return Outcome(work(common, job))
    except Exception as error:
        return failed(error)
    finally:
        torch.set_default_dtype(before)


def failed(error: Exception) -> Outcome:
    """What travels back of an error that is being handled."""
    if isinstance(error, UserError):
        return Outcome(failure=str(error))
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
        advice = "run it again with fewer --workers, or smaller shards; what was finished is kept."
        return Outcome(failure=f"A worker has not enough memory for its shard: {advice}")
    return Outcome(failure=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


@contextmanager
def sending() -> Iterator[None]:
    """What cannot be sent becomes one sentence."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        raise UserError(f"This work cannot be sent to other processes ({error}): use --backend process.") from error


def prepare(setting: Setting) -> None:
    """Once in a process, before what it was sent is used."""
    os.environ["EBAR_PLUGINS"] = setting.plug_ins
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a tokeniser of Hugging Face would take all cores
    import_plug_ins()


def leave_with(parent: int) -> None:
    """Interruptions are the driver's business; and without the driver nobody wants this process's work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
