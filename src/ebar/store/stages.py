"""Stages: things that are each made once, in a folder with a header that says from what.

    <folder>/header.json   what it was made from, its seed, the versions of ebar, whether it is done, its time
    <folder>/…             what was made

The header comes first and says at the end that the stage is done: a stage that was killed, at whatever instant, is
entered again by the same call and goes on with the files that are there.
"""

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from ebar.errors import UserError
from ebar.store.differences import changed, made_from_something_else
from ebar.store.environment import versions
from ebar.store.fingerprint import describe
from ebar.store.names import CONFIG, LOCK
from ebar.store.writing import TEMPORARY, locked, remove_folder, replace, saving, sweep, to_json

FORMAT = "ebar stage 1"
HEADER = "header.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is known of a stage."""

    stage: str  # its name in its store
    description: dict[str, Any]  # what it is made from
    seed: int
    versions: tuple[dict[str, str], ...]  # of all that worked on it, the first one first
    begun: float  # when, in seconds since 1970
    done: bool = False
    seconds: float = 0.0  # over all starts
    state: dict[str, Any] = field(default_factory=dict)  # how far it is

    @staticmethod
    def read(path: Path) -> "Header | None":
        """The header at a path; None where there is none."""
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(path, error) from None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise UserError(f"{path} is not of this version of ebar: delete {_made(path)}, or choose another name.")
        kinds = {"description": dict, "state": dict, "versions": list, "seed": int, "done": bool, "seconds": float}
        if set(found) != {entry.name for entry in fields(Header)} or not all(
            isinstance(found[name], kind) for name, kind in kinds.items()
        ):
            raise damaged(path, "something is missing")
        return Header(**{**found, "versions": tuple(found["versions"])})


class Stage:
    """A stage that is open. `done` says whether it was finished before; leaving the block without an error does it."""

    def __init__(self, path: Path, header: Header, *, writes: bool = True):
        self.path = path  # of the header
        self.header = header
        self.writes = writes  # False in all processes but one, where several work together
        self._since: float | None = None if header.done else time.monotonic()
        self._postponed = False

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def done(self) -> bool:
        return self.header.done

    @property
    def seed(self) -> int:
        """Of the store's seed and the stage's name."""
        return self.header.seed

    @property
    def description(self) -> dict[str, Any]:
        """What it is made from, as plain data: what is made from the stage is described by it."""
        return self.header.description

    @property
    def state(self) -> dict[str, Any]:
        """As it was given to `save` last."""
        return self.header.state

    @property
    def seconds(self) -> float:
        """Of making it, over all starts."""
        return self.header.seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def write(self, name: str, content: bytes) -> None:
        """A file of the stage, which is at every instant the old one or the new one."""
        if self.writes:
            with saving(str(self.folder / name)):
                replace(self.folder / name, content)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise damaged(self.folder / name, error, delete=self.folder) from None

    def tensors(self, name: str, *names: str) -> dict[str, Tensor]:
        """A file of safetensors, with at least the tensors of these names."""
        return read_tensors(self.folder / name, *names)

    def save(self, state: Mapping[str, Any] | None = None) -> None:
        """Writes to disk how far the stage is, and the time it has taken."""
        self._write(self.state if state is None else dict(state), done=False)

    def postpone(self) -> None:
        """The stage is not finished, although its block ends without an error."""
        self._postponed = True

    def leave(self, *, whole: bool) -> None:
        """At the end of the block."""
        if not self.done:
            self._write(self.state, done=whole and not self._postponed)
            self._since = None

    def _write(self, state: dict[str, Any], *, done: bool) -> None:
        self.header = dataclasses.replace(self.header, state=state, done=done, seconds=self.seconds)
        self._since = time.monotonic()
        if self.writes:
            with saving(str(self.path)):
                replace(self.path, to_json({"format": FORMAT, **asdict(self.header)}, indent=1))


@contextmanager
def open_stage(
    folder: Path,
    description: Mapping[str, Any],
    *,
    seed: int = 0,
    name: str = "",
    rebuild: bool = False,
    wait: bool = True,
) -> Iterator[Stage]:
    """A stage in a folder and with a lock of its own. Another process waits and finds it done.

    `name` is its path in a store that it is part of.
    """
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with (
        locked(folder, wait=wait),
        entered(folder / HEADER, description, seed=seed, name=name, rebuild=rebuild) as stage,
    ):
        yield stage


@contextmanager
def entered(
    path: Path,
    description: Mapping[str, Any],
    *,
    seed: int,
    name: str = "",
    rebuild: bool = False,
    writes: bool = True,
) -> Iterator[Stage]:
    """The stage whose header is at `path`, in a folder that is locked. `rebuild`: one of something else is removed."""
    wanted = json.loads(to_json(describe(description)))
    with saving(str(path.parent)):
        path.parent.mkdir(parents=True, exist_ok=True)
        if writes:
            sweep(path.parent)
    header = _known(path, wanted, rebuild=rebuild)
    if header is None:
        header = Header(stage=name, description=wanted, seed=seed, versions=(versions(),), begun=time.time())
        stage = Stage(path, header, writes=writes)
        stage.save()
    else:
        if not header.done and versions() not in header.versions:
            header = dataclasses.replace(header, versions=(*header.versions, versions()))
        stage = Stage(path, header, writes=writes)
    try:
        yield stage
    except BaseException:
        stage.leave(whole=False)
        raise
    stage.leave(whole=True)


def _known(path: Path, wanted: dict[str, Any], *, rebuild: bool) -> Header | None:
    """The header that is there, if it is of what is wanted."""
    folder = path.parent
    try:
        header = Header.read(path)
        if header is not None and header.description != wanted:
            place = folder if path.name == HEADER else path.with_suffix("")
            raise made_from_something_else(place, changed(header.description, wanted))
        if header is None and path.name == HEADER and not (folder / CONFIG).exists() and _filled(folder):
            raise UserError(f"{folder} holds files, and no header that says of what: delete it, or choose another.")
    except UserError:
        if not rebuild:
            raise
        for entry in folder.iterdir():
            if entry.is_dir():
                remove_folder(entry)
            elif entry.name != LOCK:
                entry.unlink()
        return None
    return header


def _filled(folder: Path) -> bool:
    return any(entry.name != LOCK for entry in folder.iterdir())


def stage_seconds(folder: Path) -> dict[str, float]:
    """How long each stage of a store has taken so far, in the order in which they were begun.

    Headers of earlier versions, which a finished run may have, say no times and are left out.
    """
    found = []
    for path in folder.rglob(HEADER):
        try:
            header = Header.read(path) if not path.parent.name.startswith(TEMPORARY) else None
        except UserError:
            continue
        if header is not None and header.stage == path.parent.relative_to(folder).as_posix():
            found.append(header)
    return {header.stage: header.seconds for header in sorted(found, key=lambda one: one.begun)}


def read_tensors(path: Path, *names: str) -> dict[str, Tensor]:
    """A file of safetensors that is part of something kept, and holds at least the tensors of these names."""
    try:
        found = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise damaged(path, error) from None
    if missing := [name for name in names if name not in found]:
        raise damaged(path, f"{missing[0]} is missing")
    return found


def damaged(path: Path, reason: object, *, delete: object = None) -> UserError:
    """What to say of a file that is not as it was written; `delete` is what has to go for it to be made again."""
    reason = getattr(reason, "strerror", None) or reason
    return UserError(f"{path} is damaged ({reason}): delete {delete or _made(path)}, and run the same command again.")


def _made(path: Path) -> str:
    """What a header tells of: its folder, or the file beside it."""
    return str(path.parent) if path.name == HEADER else "it"


def description_of(folder: Path) -> dict[str, Any]:
    """What the stage in this folder is made from."""
    header = Header.read(folder / HEADER)
    if header is None:
        raise damaged(folder / HEADER, "it is missing")
    return header.description
