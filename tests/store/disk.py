"""A disk that fails, or a process that dies, at any one change of the file system."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

CHANGES = ("write", "rename", "ftruncate", "mkdir", "unlink", "rmdir", "fsync")


class Dead(BaseException):
    """The process was killed: nothing that it does from now on has any effect."""


class Disk:
    """Counts changes; at number `at` it dies or is full."""

    def __init__(self, at: int | None, *, full: bool):
        self.count, self.at, self.full, self.dead = 0, at, full, False

    def counted(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise Dead
            if name == "write" and arguments[0] <= 2:
                return function(*arguments, **options)
            self.count += 1
            if self.count == self.at:
                if self.full:
                    raise OSError(errno.ENOSPC, "No space left on device")
                self.dead = True
                raise Dead
            return None if name == "fsync" else function(*arguments, **options)

        return call


@contextmanager
def failing(at: int | None = None, *, full: bool = False) -> Iterator[Disk]:
    """The `at`-th change of the disk finds it full, or the process dead; None: all go well, and are counted."""
    disk = Disk(at, full=full)
    with ExitStack() as stack:
        for name in CHANGES:
            stack.enter_context(patch.object(os, name, disk.counted(getattr(os, name), name)))
        yield disk
