"""A folder that keeps what a journey makes, one process's at a time.

<folder>/config.yaml        what it is made from
<folder>/environment.json   seed, versions, commit, machine of the first start
<folder>/lock               held while a process works in it
<folder>/<stage>/           see `stages`
"""

import json
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.store.differences import another_configuration, differences, listed_names, of_another_kind
from ebar.store.environment import environment
from ebar.store.fingerprint import describe
from ebar.store.names import CONFIG, LOCK
from ebar.store.stages import HEADER, Header, Stage, entered
from ebar.store.writing import locked, replace, saving, sweep, to_json

ENVIRONMENT = "environment.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An open store."""

    folder: Path
    seed: int
    writes: bool = True  # False in all processes but one, where several work together

    def write(self, name: str, content: bytes) -> None:
        """A file of the folder, which is at every instant the old one or the new one."""
        if self.writes:
            with saving(str(self.folder / name)):
                replace(self.folder / name, content)

    def stage(
        self, name: str, description: Mapping[str, Any] | None = None, *, rebuild: bool = False
    ) -> AbstractContextManager[Stage]:
        """The stage of this name, in the folder of this name (`round-1/lambda` is two folders deep).

        Its description is what it is made from besides what the store is; whatever `describe` knows may stand in it.
        One made from something else is an error that names what differs, or made anew where `rebuild` is true.
        """
        path = self.folder / name / HEADER
        seed = folded(self.seed, name)
        return entered(path, description or {}, seed=seed, name=name, rebuild=rebuild, writes=self.writes)


@contextmanager
def open_store(
    folder: Path | None,
    *,
    description: str | Mapping[str, Any],
    seed: int,
    writes: bool = True,
    replace_config: bool = False,
    take_over: bool = False,
    quickly_made: Collection[str] = (),
    check: Callable[[Path, list[str]], None] | None = None,
    advice: str = "choose another name, or delete it",
) -> Iterator[Store]:
    """A folder, made or found, locked against other processes until this one leaves or dies.

    Without a folder it is a temporary one, removed at the end. The description is YAML or plain data. A folder that
    was made from another one is an error, unless `replace_config` (to train longer), or unless nothing was made yet
    (but for files that are `quickly_made`) and `take_over`; a run of another kind always is. `check` is called before
    a description is replaced, with the names of the options that differ, and raises where the folder could not go on
    with them: until then nothing is written.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="ebar-") as place:
            yield Store(folder=Path(place), seed=seed, writes=True)
        return
    store = Store(folder=folder, seed=seed, writes=writes)
    if not writes:
        yield store
        return
    config = description if isinstance(description, str) else _yaml(description)
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        path = folder / CONFIG
        before = path.read_text(encoding="utf-8") if path.exists() else config
        unused = before != config and take_over and _unused(folder, quickly_made)
        if before != config and not unused:
            if not replace_config or of_another_kind(before, config):
                raise another_configuration(folder, config, advice)
            if check is not None:
                _checked(folder, check, differences(before, config))
        if unused:  # away with that, and with stages that were only begun
            for path in [*(folder / name for name in quickly_made), *folder.glob(f"*/{HEADER}")]:
                path.unlink(missing_ok=True)
        sweep(folder)
        store.write(CONFIG, config.encode())
        _note(store, environment(seed), anew=unused)
        yield store


def _yaml(description: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(describe(description), sort_keys=False, allow_unicode=True))


def _unused(folder: Path, quickly_made: Collection[str]) -> bool:
    """Whether nothing was made in it yet, as where a mistake was found before the first stage was done."""
    for entry in folder.iterdir():
        if entry.name in (CONFIG, ENVIRONMENT, LOCK, *quickly_made):
            continue
        if not entry.is_dir() or any(path.name != HEADER or _is_done(path) for path in entry.iterdir()):
            return False
    return True


def _is_done(path: Path) -> bool:
    header = Header.read(path)
    return header is not None and header.done


def _checked(folder: Path, check: Callable[[Path, list[str]], None], names: list[str]) -> None:
    try:
        check(folder, names)
    except UserError as error:
        raise UserError(
            f"{folder} is left as it was, since it cannot go on with another {listed_names(names)}: {error}"
        ) from error


def _note(store: Store, now: dict[str, Any], *, anew: bool) -> None:
    """That of the first start stays; another version since then is worth a warning, as the last bits may differ."""
    path = store.folder / ENVIRONMENT
    try:
        before = json.loads(path.read_bytes())["versions"]
    except (OSError, ValueError, KeyError):
        anew = True
    if anew:
        store.write(ENVIRONMENT, to_json(now, indent=1))
        return
    for name, number in now["versions"].items():
        if before.get(name) != number:
            message = (
                f"{path.parent} was started with {name} {before.get(name)}, this is {number}: last bits may differ"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=5)
