"""Runs a recipe's grid resumably on all cores and records the result."""

import json
import math
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ebar.errors import UserError, choose
from ebar.progress import bar
from ebar.recipes import RECIPES, SCALES, find_recipe
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.render import FORMAT, settled, write_recipe_page
from ebar.shards.on_ray import ray_cluster
from ebar.store.environment import environment
from ebar.store.fingerprint import fingerprint, source_fingerprint
from ebar.store.stages import HEADER, Header, open_stage
from ebar.store.writing import remove_folder, replace, saving, to_json
from ebar.tables import import_plug_ins, plug_ins

SELDOM = ("over", "values", "picture")
RESULT = "result.json"  # of a cell, in its folder
SPANS = "spans"  # in the state of a cell: from when to when it was run, a pair for each start


Work = Callable[[Cell, Path], dict[str, Any]]  # a recipe's `run`: no more of it goes to other processes


class Outcome(NamedTuple):
    """Of one run: what went wrong, if anything did."""

    cell: Cell
    failure: str = ""
    trace: str = ""  # empty where the user can mend it


def recorded(output: Path) -> dict[str, list[str]]:
    """Which scales of each recipe have a recorded result under `output`."""
    return {name: [scale for scale in SCALES if result_path(name, scale, output).exists()] for name in RECIPES}


def result_path(name: str, scale: str, output: Path) -> Path:
    """Where the recorded result of a recipe lies."""
    return output / f"{name}.{scale}.json"


def reproduce(
    name: str, *, scale: str, output: Path, work: Path, workers: int, fresh: bool, command: str, backend: str = "joblib"
) -> Path:
    """Run what is not yet done, then write the result; its table and its plot are made from that file.

    Killing it loses only the runs under way. A run that fails keeps none of the others from being run and kept; what
    it left in its folder stays, for the next call to go on from.
    """
    run_all = choose(BACKENDS, backend, "backend")
    if scale not in SCALES:
        raise UserError(f"There is no scale {scale!r}: choose one of {', '.join(SCALES)}.")
    recipe = find_recipe(name)
    grid = recipe.grid(scale)
    # Absolute: a relative name of a file that a cell writes for itself would be looked for among the data.
    folder = work.absolute() / f"{recipe.runs or name}.{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        shutil.rmtree(folder)
        folder.mkdir()
    around, source = environment(0), source_of_results()
    places = [(cell, folder / fingerprint(dict(cell), source)) for cell in grid]
    missing = [(cell, place) for cell, place in places if not ((header := _header(place)) and header.done)]
    with bar(f"{name} at scale {scale}", len(grid), "runs") as progress, saving(str(folder)):
        progress.advance(len(grid) - len(missing))
        failed = []
        for outcome in _alone(recipe.run, missing) if workers == 1 else run_all(recipe.run, missing, workers, folder):
            progress.advance(1)
            if outcome.failure:
                failed.append(outcome)
    if failed:
        raise _error(name, failed)
    headers = [header for _, place in places if (header := _header(place))]
    results = [json.loads((place / RESULT).read_bytes()) for _, place in places]
    rows = recipe.rows([(one.description["cell"], result) for one, result in zip(headers, results, strict=True)])
    path = result_path(name, scale, output)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "format": FORMAT,
        "recipe": name,
        "title": recipe.title,
        "source": recipe.source,
        "scale": scale,
        "command": command,
        "backend": backend,
        "seeds": sorted({cell["seed"] for cell in grid}),
        "versions": around["versions"],
        "commit": around["commit"],
        # Of all runs, those of an earlier, interrupted call included: added up, and while at least one was under way.
        "wall_seconds": round(sum(header.seconds for header in headers), 1),
        "elapsed_seconds": round(elapsed([span for header in headers for span in header.state[SPANS]]), 1),
        "cells": grid,
        "rows": [_plain(row) for row in settled(rows, grid, recipe.read)],
    }
    with saving(str(path)):
        replace(path, to_json(record, indent=1))
    write_recipe_page(path, recipe)
    return path


def render(name: str, *, scale: str, output: Path) -> Path:
    """The page and the plot of a recorded result anew from its JSON, which stays as it is; nothing is run."""
    recipe = find_recipe(name)
    path = result_path(name, scale, output)
    if not path.exists():
        raise UserError(
            f"There is no result of {name} at scale {scale} under {output}: leave out --render, and it is run."
        )
    write_recipe_page(path, recipe)
    return path


def _plain(row: Row) -> dict[str, Any]:
    """A row as JSON; what most rows have not, they say nothing of."""
    return {key: value for key, value in asdict(row).items() if value is not None or key not in SELDOM}


def elapsed(spans: Sequence[Sequence[float]]) -> float:
    """How long at least one of these spans of time lasted: what overlaps counts once, what lies between not at all."""
    total, until = 0.0, -math.inf
    for begun, ended in sorted(spans, key=lambda span: span[0]):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


def source_of_results() -> str:
    """A fingerprint of the code that a result depends on: ebar's own files, and those named in EBAR_PLUGINS.

    It is part of what a cell is made from, so that no result of other code, committed or not, stands in a table.
    """
    found = [find_spec(name) for name in plug_ins()]
    texts = [Path(spec.origin).read_text(encoding="utf-8") for spec in found if spec is not None and spec.origin]
    return fingerprint(source_fingerprint(), texts)


def _header(place: Path) -> Header | None:
    return Header.read(place / HEADER)


def _error(name: str, failed: Sequence[Outcome]) -> Exception:
    """One sentence, about the first of them; an error in the recipe's code carries its trace."""
    first = next((outcome for outcome in failed if outcome.trace), failed[0])
    others = "" if len(failed) == 1 else f" ({len(failed) - 1} more failed)"
    message = f"The run {json.dumps(first.cell)} of {name} failed{others}, the finished ones are kept: {first.failure}"
    if not first.trace:
        return UserError(message)
    error = RuntimeError(message)
    error.add_note(first.trace)
    return error


def _alone(run: Work, cells: Sequence[tuple[Cell, Path]]) -> Iterator[Outcome]:
    """In this process, one after another."""
    for cell, path in cells:
        yield _run_one(run, cell, path)


def _on_joblib(run: Work, cells: Sequence[tuple[Cell, Path]], workers: int, folder: Path) -> Iterator[Outcome]:
    """Outcomes as they come, in no particular order."""
    if len(cells) <= 1:
        yield from _alone(run, cells)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise UserError("Several workers need joblib: pip install 'ebar[sweep]', or use --workers 1.") from None
    jobs = (delayed(_run_one)(run, cell, path) for cell, path in cells)
    try:
        yield from Parallel(n_jobs=workers, return_as="generator_unordered")(jobs)
    except BrokenProcessPool as broken:
        raise UserError(
            "A worker process died, most often for want of memory: run it again with fewer --workers; "
            "finished runs are kept."
        ) from broken


def _on_ray(run: Work, cells: Sequence[tuple[Cell, Path]], workers: int, folder: Path) -> Iterator[Outcome]:
    """The same on Ray: on this machine, or on the cluster that RAY_ADDRESS names, which must share the work folder."""
    with ray_cluster(workers, folder) as ray:
        remote = ray.remote(num_cpus=1, max_retries=0)(_run_one)
        waiting = {remote.remote(run, cell, path.absolute()): cell for cell, path in cells}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(done)
            try:
                yield ray.get(done)
            except ray.exceptions.RayError as died:
                yield Outcome(cell, f"its worker died ({type(died).__name__}); run it with fewer --workers.")


BACKENDS: dict[str, Callable[[Work, Sequence[tuple[Cell, Path]], int, Path], Iterator[Outcome]]] = {
    "joblib": _on_joblib,
    "ray": _on_ray,
}


def _run_one(run: Work, cell: Cell, place: Path) -> Outcome:
    """A cell is a stage: its folder holds the result, and until there is one, what the run has made so far."""
    import torch

    import_plug_ins()  # this may be another process
    # When several processes share the cores, one thread each; and one always, for the same figures on any backend.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    work = place / "work"
    try:
        with open_stage(place, {"cell": dict(cell), "source": source_of_results()}) as stage:
            if not stage.done:
                work.mkdir(exist_ok=True)
                begun = time.time()
                try:
                    stage.write(RESULT, to_json(run(cell, work)))
                finally:
                    stage.save({SPANS: [*stage.state.get(SPANS, []), [begun, time.time()]]})
        remove_folder(work)  # of no more use
    except UserError as error:
        return Outcome(cell, str(error))
    except Exception as error:
        # As text: not every exception can travel between processes.
        return Outcome(cell, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        torch.set_num_threads(threads)
    return Outcome(cell)


def default_workers() -> int:
    """One per core."""
    return os.cpu_count() or 1
