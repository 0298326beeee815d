"""Writing what must not be lost: under a temporary name, to the disk, then renamed.

One process at a time: the lock of everything that is kept.
"""

import errno
import fcntl
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ebar.errors import UserError
from ebar.store.names import LOCK

TEMPORARY = ".saving-"  # begins the name of what is being written or removed; swept at the next start


@contextmanager
def saving(what: str) -> Iterator[None]:
    """What the system refuses becomes one sentence."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cause = "the disk is full" if full else str(error.strerror)
        advice = "make room and run it again" if full else "mend that, or choose another folder, and run it again"
        message = f"Could not save {what}: {cause}; what was saved before is intact, so {advice}."
        raise UserError(message) from error


def write(path: Path, content: bytes) -> None:
    """A file whose content has reached the disk; its name may not have, before `sync_folder`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """All of it: the system may take less at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """The names in a folder have reached the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """A file that is at every instant either the old one or the new one."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        write(temporary, content)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def once(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """JSON that is made and written where it is not there yet, in a folder that says what everything in it is of."""
    if not path.exists():
        with saving(str(path)):
            replace(path, to_json(make(), indent=1))
    return json.loads(path.read_bytes())  # type: ignore[no-any-return]


def replace_folder(path: Path, files: dict[str, bytes]) -> None:
    """A folder that appears complete or not at all."""
    temporary = path.with_name(TEMPORARY + path.name)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write(temporary / name, content)
        publish_folder(temporary, path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def publish_folder(temporary: Path, path: Path) -> None:
    """Gives a folder that is complete its name, at once; one that had it before is gone."""
    sync_folder(temporary)
    remove_folder(path)
    os.rename(temporary, path)
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """A folder that disappears at once, never half of it."""
    if path.exists():
        doomed = path.with_name(f"{TEMPORARY}removed-{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Away with what an earlier process was writing or removing when it died."""
    for leftover in folder.glob(TEMPORARY + "*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses and named tuples, such as estimates, by the names of their fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value  # a tensor


def to_json(value: Any, *, indent: int | None = None) -> bytes:
    """One JSON text of what `plain` can convert. JSON has no infinity and no NaN: they become strings that `float`
    reads back."""

    def finite(node: Any) -> Any:
        if isinstance(node, float) and not math.isfinite(node):
            return str(node)
        if isinstance(node, dict):
            return {key: finite(branch) for key, branch in node.items()}
        return [finite(branch) for branch in node] if isinstance(node, list) else node

    return (json.dumps(finite(plain(value)), indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()


def from_plain(kind: Any, value: Any) -> Any:
    """The inverse of `plain`, also after a trip through JSON: `kind` is the type, a dataclass or named tuple say.

    Missing fields have their defaults; a value that is not of its type is a KeyError, TypeError or ValueError.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        same = value is None or (isinstance(value, str) and str in arguments)
        return value if same else from_plain(arguments[0], value)
    if origin is tuple:
        return tuple(from_plain(arguments[0], item) for item in value)
    if origin is dict:
        return {key: from_plain(arguments[1], item) for key, item in value.items()}
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        types = get_type_hints(kind)
        return kind(**{name: from_plain(types[name], item) for name, item in value.items()})
    if kind is int and (type(value) is not int):
        raise ValueError(f"{value!r} is no whole number")
    if hasattr(kind, "array_type"):
        import torch  # here, so that whoever only writes need not wait for it

        return torch.tensor(_floats(value), dtype=torch.float64)
    return float(value) if kind is float else value


def _floats(value: Any) -> Any:
    return [_floats(item) for item in value] if isinstance(value, list) else float(value)


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
