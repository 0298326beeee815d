"""A sweep: trials that are ordinary runs in one folder, and a record of what came of them.

    <folder>/trials.json     what each trial tried, and what came of it
    <folder>/trial-0000/     the run of the first trial

Killed at any instant, the same call goes on: trials that were under way are taken up where their own checkpoints are.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ebar.errors import UserError
from ebar.journeys.sweep.search import Search, import_optuna
from ebar.journeys.sweep.trials import TRIALS, Swept, Trial, Value, read_trials, trial_folder
from ebar.progress import bar, shown
from ebar.shards import Workers, run_shards
from ebar.store.stages import damaged
from ebar.store.store import Store
from ebar.store.writing import to_json
from ebar.training.metrics import Sink
from ebar.training.train import History, Result

Run = Callable[[Any, Path, Sequence[Sink]], Result]
"""A run of one configuration in a folder, whose sinks are told what it logs."""


def sweep(
    run: Run,
    configure: Callable[[Mapping[str, Value]], Any],
    search: Search,
    trials: int,
    store: Store,
    *,
    monitor: str = "loss",
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Swept:
    """`trials` runs in all, each of a configuration that `configure` makes of the values tried, in a folder of its own.

    A trial that fails is noted with its reason, and the others go on. Suggestions are seeded by trial; with several
    workers, which trials were known when another was suggested or given up depends on timing.
    """
    import_optuna()
    folder = store.folder
    known = {trial.number: trial for trial in read_sweep(folder).trials}

    def note(trial: Trial) -> None:
        known[trial.number] = trial
        store.write(TRIALS, to_json([known[number]._asdict() for number in sorted(known)], indent=1))

    def jobs() -> Iterator[tuple[int, Any]]:
        for number in range(trials):
            if number not in known:
                note(Trial(number, search.suggest(number, list(known.values()))))
            if known[number].state is None:
                yield number, configure(known[number].values)

    common = _Common(run, search, folder.absolute(), f"validation.{monitor}")
    with bar("sweeping", trials, "trials") as progress, shown(False):
        progress.advance(sum(number < trials and one.state is not None for number, one in known.items()))
        with closing(run_shards(_trial, common, jobs(), workers=workers, ahead=1)) as outcomes:
            for _, (number, outcome) in outcomes:
                note(known[number]._replace(**outcome))
                progress.advance(1)
    return Swept(folder=folder, trials=tuple(known[number] for number in sorted(known)))


def read_sweep(folder: Path) -> Swept:
    """What a folder holds."""
    try:
        return read_trials(folder)
    except (OSError, ValueError, TypeError) as error:
        raise damaged(folder / TRIALS, error) from None


class _Common(NamedTuple):
    """What all trials have in common."""

    run: Run
    search: Search
    folder: Path
    figure: str  # its name in metrics.jsonl


class GivenUpError(Exception):
    """A trial that is not among the best. Its run can be gone on with, as after an interruption."""


def _trial(common: _Common, job: tuple[int, Any]) -> tuple[int, dict[str, Any]]:
    """One run, or the rest of one. What came of it, whatever that is."""
    number, configuration = job
    place = trial_folder(common.folder, number)
    problem, state = "", "complete"
    try:
        result = common.run(configuration, place, [_Referee(common, number)])
        if result.status == "halted":
            problem = result.reason
    except GivenUpError:
        state = "pruned"
    except UserError as error:
        problem = str(error)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    figures = [(value, step) for step, value in curve_of(place, common.figure) if math.isfinite(value)]
    if not problem and not figures:
        problem = "No held-out figure of it is a finite number."
    figure, step = min(figures, default=(None, None))
    return number, {"state": "failed" if problem else state, "figure": figure, "step": step, "problem": problem}


@dataclass(frozen=True)
class _Referee:
    """Is told each held-out figure of a trial, and ends it where the others are better."""

    common: _Common
    number: int

    def write(self, step: int, values: Mapping[str, float]) -> None:
        common = self.common
        if common.figure not in values:
            return
        own = _figures(trial_folder(common.folder, self.number), common.figure)
        halving = common.search.halving
        if len(own) not in halving.rungs(len(own)):
            return
        places = [place for place in sorted(common.folder.glob("trial-*")) if place.name != self._name]
        if halving.gives_up(own, [_figures(place, common.figure) for place in places]):
            raise GivenUpError

    @property
    def _name(self) -> str:
        return trial_folder(self.common.folder, self.number).name


def curve_of(place: Path, name: str) -> list[tuple[int, float]]:
    """(step, figure) of a run so far; none where it has not begun. A line that is being written is left out."""
    try:
        text = (place / "metrics.jsonl").read_text(encoding="utf-8")
    except OSError:
        return []
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [(step, float(value)) for step, value in History(lines).curve(name)]


def _figures(place: Path, name: str) -> list[float]:
    return [value for _, value in curve_of(place, name)]
