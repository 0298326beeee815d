"""The folder of a run: `runs/<name>/`, a store with checkpoints in it."""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.errors import UserError
from ebar.store.store import open_store
from ebar.store.writing import replace, saving, to_json
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

    def add_results(self, **found: Any) -> None:
        """Results by name, beside those that results.json has already."""
        try:
            known = json.loads((self.folder / "results.json").read_text())
        except (OSError, ValueError):
            known = {}
        self.write("results.json", to_json({**known, **found}, indent=1))


@contextmanager
def open_run(
    folder: Path | None,
    *,
    config: str,
    seed: int,
    replace_config: bool = False,
    take_over: bool = False,
    quickly_made: Collection[str] = (),
    check: Callable[[Run, list[str]], None] | None = None,
    advice: str = "choose another name, or delete it",
) -> Iterator[Run]:
    """A run folder, made or found, locked against other processes; see `open_store`.

    Where several processes train together, the first one writes. Without a folder everything is removed at the end.
    """
    if folder is None and distributed.world_size() > 1:
        raise UserError("Several processes need a run folder that all of them see: give one.")
    with open_store(
        folder,
        description=config,
        seed=seed,
        writes=distributed.rank() == 0,
        replace_config=replace_config,
        take_over=take_over,
        quickly_made=quickly_made,
        check=None if check is None else lambda place, names: check(Run(place), names),
        advice=advice,
    ) as store:
        if store.writes:
            with saving(str(store.folder)):
                (store.folder / "checkpoints").mkdir(exist_ok=True)
        yield Run(store.folder)
