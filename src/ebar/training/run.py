"""The folder of a run: `runs/<name>/`, one process's at a time."""

import fcntl
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ebar.errors import UserError
from ebar.store.differences import another_configuration, differences, named, of_another_kind
from ebar.store.writing import replace, saving, sweep, to_json
from ebar.training import distributed
from ebar.training.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run keeps what it is: config.yaml, environment.json, metrics.jsonl, checkpoints/, results.json."""

    folder: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints")

    def write(self, name: str, content: bytes) -> None:
        """One file of the folder, replaced at once."""
        with saving(str(self.folder / name)):
            replace(self.folder / name, content)


@contextmanager
def open_run(
    folder: Path,
    *,
    config: str,
    seed: int,
    replace_config: bool = False,
    check: Callable[[Run, list[str]], None] | None = None,
) -> Iterator[Run]:
    """A run folder, made or found, locked against other processes until this one leaves or dies.

    A folder that holds a run of another configuration is an error, unless `replace_config` (to train longer); one of
    another kind of run always is. `check` is asked before a configuration is replaced, with the names of the options
    that differ, and raises where the folder could not go on with them: until then nothing is written.
    """
    run = Run(folder)
    if distributed.rank() > 0:
        yield run  # rank 0 writes
        return
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        path = folder / "config.yaml"
        before = path.read_text(encoding="utf-8") if path.exists() else config
        if before != config:
            if not replace_config or of_another_kind(before, config):
                advice = "choose another name, or give --replace_config to go on with this one"
                raise another_configuration(folder, config, advice)
            if check is not None:
                _checked(run, check, differences(before, config))
        sweep(folder)
        with saving(str(folder)):
            (folder / "checkpoints").mkdir(exist_ok=True)
        run.write("config.yaml", config.encode())
        _note_environment(run, environment(seed))
        yield run


def _checked(run: Run, check: Callable[[Run, list[str]], None], names: list[str]) -> None:
    try:
        check(run, names)
    except UserError as error:
        raise UserError(
            f"{run.folder} is left as it was, since it cannot go on with another {named(names)}: {error}"
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The lock is the kernel's, on an open file: it is gone with the process, however that ends."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(descriptor, 20).decode(errors="replace").strip()
            raise UserError(
                f"{folder} is in use by another process ({owner or 'unknown'}): wait for it, or choose another name."
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def environment(seed: int) -> dict[str, Any]:
    """What a number depends on besides the configuration."""
    versions = {"python": platform.python_version()}
    for name in ("ebar", "torch", "numpy", "safetensors"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return {
        "seed": seed,
        "versions": versions,
        "commit": _commit(),
        "command": sys.argv,
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else None,
        },
        "processes": distributed.world_size(),
    }


def _commit() -> str | None:
    """The commit of the source this is run from, with a + where it was changed since."""
    here = Path(__file__).parent
    answers = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(here)]):
        try:
            done = subprocess.run(["git", "-C", str(here), *command], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+" if answers[1] else "")


def _note_environment(run: Run, now: dict[str, Any]) -> None:
    """Kept from the first start; another version since then is worth a warning, as the last bits may differ."""
    path = run.folder / "environment.json"
    try:
        before = json.loads(path.read_bytes())["versions"]
    except (OSError, ValueError, KeyError):
        run.write("environment.json", to_json(now, indent=1))
        return
    for name, number in now["versions"].items():
        if before.get(name) != number:
            message = f"{run.folder} was started with {name} {before.get(name)}, this is {number}: last bits may differ"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
