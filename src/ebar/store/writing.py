"""Writing what must not be lost: under a temporary name, to the disk, then renamed."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ebar.errors import UserError

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
        sync_folder(temporary)
        remove_folder(path)
        os.rename(temporary, path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
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


def plain(tree: Any) -> Any:
    """Named tuples, such as estimates, as dictionaries; other tuples as lists: what JSON can hold by name."""
    if hasattr(tree, "_asdict"):
        return {key: plain(value) for key, value in tree._asdict().items()}
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def to_json(value: Any, *, indent: int | None = None) -> bytes:
    """One JSON text. JSON has no infinity and no NaN: they become strings that `float` reads back."""

    def finite(node: Any) -> Any:
        if isinstance(node, float) and (node - node != 0):
            return str(node)
        if isinstance(node, dict):
            return {key: finite(branch) for key, branch in node.items()}
        return [finite(branch) for branch in node] if isinstance(node, list | tuple) else node

    return (json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()
