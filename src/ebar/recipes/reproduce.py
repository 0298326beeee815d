"""Runs a recipe's grid resumably on all cores and records the result."""

import hashlib
import importlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ebar.errors import UserError, choose
from ebar.progress import bar
from ebar.recipes import RECIPES, SCALES
from ebar.recipes.recipe import Cell, Recipe
from ebar.training.run import environment
from ebar.training.storage import replace, saving, to_json


def load(name: str) -> Recipe:
    """A recipe by name."""
    recipe = importlib.import_module(choose(RECIPES, name, "recipe")).RECIPE
    if not isinstance(recipe, Recipe):
        raise TypeError(f"{name} is not a recipe")
    return recipe


def recorded(output: Path) -> dict[str, list[str]]:
    """Which scales of each recipe have a recorded result under `output`."""
    return {name: [scale for scale in SCALES if result_path(name, scale, output).exists()] for name in RECIPES}


def result_path(name: str, scale: str, output: Path) -> Path:
    """Where the recorded result of a recipe lies."""
    return output / f"{name}.{scale}.json"


def reproduce(name: str, *, scale: str, output: Path, work: Path, workers: int, fresh: bool, command: str) -> Path:
    """Run what is not yet done, then write the result and its plot; killing it loses only the runs under way."""
    if scale not in SCALES:
        raise UserError(f"There is no scale {scale!r}: choose one of {', '.join(SCALES)}.")
    recipe = load(name)
    grid = recipe.grid(scale)
    folder = work / f"{name}.{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        for path in folder.glob("*.json"):
            path.unlink()
    around = environment(0)
    kept = [folder / f"{_key(cell, around['commit'])}.json" for cell in grid]
    missing = [(cell, path) for cell, path in zip(grid, kept, strict=True) if not path.exists()]
    with bar(f"{name} at scale {scale}", len(grid), "runs") as progress, saving(str(folder)):
        progress.advance(len(grid) - len(missing))
        for path, content in _run_all(name, missing, workers):
            replace(path, content)
            progress.advance(1)
    finished = [json.loads(path.read_text()) for path in kept]
    rows = recipe.rows(scale, [(entry["cell"], entry["result"]) for entry in finished])
    path = result_path(name, scale, output)
    path.parent.mkdir(parents=True, exist_ok=True)
    recipe.plot(rows, path.with_suffix(".svg"))
    record = {
        "recipe": name,
        "title": recipe.title,
        "source": recipe.source,
        "scale": scale,
        "command": command,
        "seeds": sorted({cell["seed"] for cell in grid}),
        "versions": around["versions"],
        "commit": around["commit"],
        # Of all runs together, those of an earlier, interrupted call included.
        "wall_seconds": round(sum(entry["seconds"] for entry in finished), 1),
        "rows": [asdict(row) for row in rows],
    }
    with saving(str(path)):
        replace(path, to_json(record, indent=1))
    return path


def _key(cell: Cell, commit: str | None) -> str:
    # A change of code makes earlier runs stale: the commit is part of the name.
    text = json.dumps([cell, commit], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _run_all(name: str, cells: Sequence[tuple[Cell, Path]], workers: int) -> Iterator[tuple[Path, bytes]]:
    """Results as they come, in no particular order, each with the file it belongs in."""
    if workers == 1 or len(cells) <= 1:
        for cell, path in cells:
            yield _run_one(name, cell, path)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise UserError("Several workers need joblib: pip install 'ebar[sweep]', or use --workers 1.") from None
    jobs = (delayed(_run_one)(name, cell, path) for cell, path in cells)
    yield from Parallel(n_jobs=workers, return_as="generator_unordered")(jobs)


def _run_one(name: str, cell: Cell, path: Path) -> tuple[Path, bytes]:
    import torch

    # When several processes share the cores, one thread each.
    torch.set_num_threads(1)
    began = time.perf_counter()
    result = load(name).run(cell)
    return path, to_json({"cell": dict(cell), "result": result, "seconds": time.perf_counter() - began})


def default_workers() -> int:
    """One per core."""
    return os.cpu_count() or 1
