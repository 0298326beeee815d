"""Shards on the cores of this machine, by joblib's own processes (loky)."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from ebar.errors import UserError
from ebar.shards.attempt import Outcome, Setting, attempt, leave_with, prepare, sending
from ebar.shards.workers import Workers

IDLE = 600.0  # seconds after which a worker that nobody asks anything ends


class CorePool:
    """Processes that were each sent the work once."""

    def __init__(self, work: Callable[[Any, Any], Any], common: Any, workers: Workers):
        self.number = workers.number
        setting = Setting(workers.threads, torch.get_default_dtype(), os.environ.get("EBAR_PLUGINS", ""))
        self.sent = (work, common, setting, os.getpid())
        self.executor: Any = None

    def submit(self, job: Any) -> "Future[Any]":
        if self.executor is None:
            self.executor = _executor(self.number, self.sent)
        with sending():  # what is common goes with the first one
            future: Future[Any] = self.executor.submit(_run, job)
        return future

    def is_death(self, error: BaseException) -> bool:
        return isinstance(error, BrokenProcessPool)

    def renew(self) -> None:
        """With one process less, all are lost: new ones."""
        self.close()

    def close(self) -> None:
        """At once, whatever they are doing."""
        if self.executor is not None:
            self.executor.shutdown(wait=True, kill_workers=True)
            self.executor = None


@contextmanager
def core_pool(work: Callable[[Any, Any], Any], common: Any, workers: Workers) -> Iterator[CorePool]:
    """Closed at the end."""
    pool = CorePool(work, common, workers)
    try:
        yield pool
    finally:
        pool.close()


def _executor(number: int, sent: tuple[Any, ...]) -> Any:
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError:
        raise UserError("Several processes need joblib: pip install 'ebar[sweep]', or use --backend process.") from None
    return ProcessPoolExecutor(number, timeout=IDLE, initializer=_receive, initargs=sent)


_received: list[Any] = []  # in a worker: the work, what all shards have in common, the setting


def _receive(work: Callable[[Any, Any], Any], common: Any, setting: Setting, parent: int) -> None:
    leave_with(parent)
    prepare(setting)
    _received[:] = [work, common, setting]


def _run(job: Any) -> Outcome:
    work, common, setting = _received
    return attempt(work, common, job, setting)
