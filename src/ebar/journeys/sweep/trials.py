"""What a sweep has tried, as its folder keeps it: read by whoever lists runs, so nothing heavy is imported."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

TRIALS = "trials.json"
State = Literal["complete", "pruned", "failed"]
Value = float | int | str | bool


class Trial(NamedTuple):
    """What is known of one."""

    number: int
    values: Mapping[str, Value]  # by the names of options
    state: State | None = None  # None while it is under way
    figure: float | None = None  # the best of its held-out figures, where there is one
    step: int | None = None  # when it was reached
    problem: str = ""  # why it failed


@dataclass(frozen=True, kw_only=True)
class Swept:
    """All trials of a sweep, by their numbers."""

    folder: Path
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """That of the lowest figure: of those run to their end, where there are any."""
        for states in (("complete",), ("pruned",)):
            found = [one for one in self.trials if one.state in states and one.figure is not None]
            if found:
                return min(found, key=lambda one: (one.figure, one.number))
        return None


def trial_folder(folder: Path, number: int) -> Path:
    """Where the run of a trial is."""
    return folder / f"trial-{number:04d}"


def read_trials(folder: Path) -> Swept:
    """What a folder holds; OSError, TypeError or ValueError where that cannot be read."""
    try:
        found = [Trial(**one) for one in json.loads((folder / TRIALS).read_bytes())]
    except FileNotFoundError:
        found = []
    # JSON has no infinity and no NaN.
    trials = (one._replace(figure=None if one.figure is None else float(one.figure)) for one in found)
    return Swept(folder=folder, trials=tuple(trials))
