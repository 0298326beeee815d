"""Where shards are run, and with how many threads each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from ebar.bounds import Count, Natural


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Where shards are run. The first two decide nothing about the result."""

    backend: Literal["process", "joblib", "ray"] = "process"
    """Where shards are run: in this process, in several of this machine, or on Ray (the cluster of RAY_ADDRESS)."""
    workers: Natural = 0
    """Processes that joblib or Ray use; 0 means one per core."""
    threads: Count = 1
    """Of each shard. It is part of what a file is made from, as the last bits of sums depend on it."""

    @property
    def number(self) -> int:
        """Of processes on this machine."""
        return 1 if self.backend == "process" else self.workers or max(1, (os.cpu_count() or 1) // self.threads)

    @property
    def description(self) -> dict[str, int]:
        """What a result depends on; one thread, which is usual, goes unsaid."""
        return {} if self.threads == 1 else {"threads": int(self.threads)}


@dataclass(frozen=True, kw_only=True)
class OptionalWorkers:
    """The same for what is done here, on all cores, where nothing is said of it."""

    backend: Literal["process", "joblib", "ray"] | None = None
    """Where work is done in shards: in this process, in several of this machine, or on Ray; by default it is done here,
    on all cores, whose number decides the last digits."""
    workers: Natural = 0
    """Processes that joblib or Ray use; 0 means one per core."""
    threads: Count = 1
    """Of each shard."""

    @property
    def chosen(self) -> Workers | None:
        if self.backend is None:
            return None
        return Workers(backend=self.backend, workers=self.workers, threads=self.threads)


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Inside, torch computes on so many threads of this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
