"""Commands that keep what they make in a run folder: where it is, how they are interrupted, what they print."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ebar.build.next_commands import NEXT, next_lines
from ebar.build.summaries import summarise
from ebar.cli.show import show_json
from ebar.config.reader import Answer
from ebar.errors import UserError
from ebar.progress import shown
from ebar.training import distributed

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class RunFolder(Answer):
    """Where a run is kept, and how its result is printed. None of it decides the result."""

    name: str = "run"
    """Of the run: its folder is RUNS/NAME."""
    runs: Path = Path("runs")
    """Folder of all runs."""

    @property
    def folder(self) -> Path:
        return run_folder(self.runs, self.name)


def run_folder(runs: Path, name: str) -> Path:
    """The folder of a run; its name is one folder's, not a path."""
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise UserError(f"{name!r} cannot be the name of a run: it must be the name of one folder.")
    return runs / name


def carry_out(
    place: Any,
    work: Callable[[], Found],
    *,
    to_dict: Callable[[Found], dict[str, Any]],
    show: Callable[[Found], None],
) -> int:
    """Do the work of a command and print what came of it; interrupted, say that the run can be continued.

    `place` has the run's `folder`, and `json`. Of several processes, the first one prints.
    """
    silent = distributed.rank() > 0
    try:
        with shown(not place.json):
            found = work()
    except KeyboardInterrupt as error:
        late = any(getattr(each, "reason", None) == "time" for each in error.args)
        if place.json and not silent:
            show_json({"status": "interrupted", "folder": str(place.folder), **({"reason": "time"} if late else {})})
        elif not silent:
            why = "the time is up" if late else "interrupted"
            sys.stdout.write(f"{why}, and saved in {place.folder}: run the same command to go on\n")
        return 130
    if place.json and not silent:
        show_json({"status": "finished", "folder": str(place.folder), **to_dict(found)})
    elif not silent:
        show(found)
        _say_next(place.folder)
    return 0


def _say_next(folder: Path) -> None:
    """What can be done with a run that is finished, as commands that run as they stand."""
    run = summarise(folder)
    if run.state == "finished" and run.kind in NEXT:
        sys.stdout.write("\n".join(["", *next_lines(run), ""]))
