"""One process at a time: the lock of everything that is kept."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebar.errors import UserError
from ebar.store.writing import saving

LOCK = "lock"  # the name of a folder's lock file

_held: set[int] = set()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[int]:
    """Locks a folder, through a file in it, or a file itself; gives the file's descriptor.

    The lock is the kernel's, on an open file: it is gone with the process, however that ends. If another process
    has it, this one waits where `wait` is true; else it is an error that names the process.
    """
    folder = path.is_dir()
    with saving(str(path)):
        descriptor = os.open(path / LOCK if folder else path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    _held.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() if folder else ""
            process = f"another process ({owner})" if owner else "another process"
            raise UserError(f"{path} is in use by {process}: wait for it, or choose another name.") from error
        if folder:
            with saving(str(path)):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
        yield descriptor
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _let_go() -> None:
    """In a forked child: it would go on holding the lock after its parent's death."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
