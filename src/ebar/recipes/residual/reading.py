"""What the recipes of Deng et al. 2020 share: their runs, names in their rows, and what their intervals are over."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from ebar.recipes.figures import crossed, row_of
from ebar.recipes.recipe import Cell, Items, Result, Row
from ebar.recipes.residual.cells import cells
from ebar.recipes.residual.run import run_cell

PAPER = "Deng et al. 2020"
RUNS: dict[str, Any] = {"grid": cells, "run": run_cell, "runs": "residual/text"}
TASK = ("base", "corpus")
MODEL = (*TASK, "model")
BY_TASK: dict[str, Any] = {"panels": TASK, "title": "{base} on {corpus}"}
NAMES = {
    "base": "base LM", "ralm": "RALM", "balm": "BALM", "unit": "UniT", "bit_base": "BiT-Base", "bit_med": "BiT-Med",
    "pretrained_base": "BiT-Base*", "pretrained_bounded": "BiT-Base*, |E| ≤ 3", "pretrained_large": "BiT-Large*",
}  # fmt: skip
BASES = {"transformer": "Transformer"}
SYSTEMS = ("data", "base", "joint")
SHARED = "prefixes"  # what the seeds of an energy are all measured on


def row_settings(cell: Cell, kind: str) -> dict[str, Any]:
    """What a row is about."""
    return {"corpus": cell["corpus"], "base": BASES[cell["base"]], "model": NAMES[kind]}


def energy_results(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every energy of a cell, as a run of its own."""
    return [
        ({**row_settings(cell, kind), "energy seed": seed, "parameters": run["parameters"]}, run)
        for kind, runs in result["energies"].items()
        for seed, run in enumerate(runs, _settings(cell, kind).get("first_seed", 0))
    ]


def with_part(*keys: str) -> Any:
    """The first seeds of the energies of which a run has this part."""

    def parts(cell: Cell, result: dict[str, Any]) -> list[Result]:
        found = [run for run in energy_results(cell, result) if run[0]["energy seed"] == 0]
        return [run for run in found if reduce(getitem, keys, run[1]) is not None]

    return parts


def cell_of(row: Row, cells: Sequence[Cell]) -> Cell:
    """The run that a row is of, with the settings that its energy has of its own."""
    kind = next(kind for kind, name in NAMES.items() if name == row.settings["model"])
    own = [cell for cell in cells if _task(cell) == (row.settings["base"], row.settings["corpus"])]
    found = next((cell for cell in own if kind in cell["energies"]), own[0])
    return {**found, **_settings(found, kind).get("figures", {})}


def _settings(cell: Cell, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = cell.get("energies", {}).get(kind, {})
    return found


def _task(cell: Cell) -> tuple[str, str]:
    return BASES[cell["base"]], str(cell["corpus"])


def by_task(results: Sequence[Result]) -> list[Result]:
    """Runs of one base and text as one: they share the base to the last bit, and the prefixes.

    Seeds of an energy that several of them share out are put together in the order of the runs.
    """
    tasks: dict[tuple[str, str], Result] = {}
    for cell, result in results:
        known = tasks.get(_task(cell))
        if known is None:
            tasks[_task(cell)] = cell, result
            continue
        if known[1]["rivals"]["base"] != result["rivals"]["base"]:
            raise ValueError(f"the runs of {' on '.join(_task(cell))} have different bases: run them on one machine")
        energies = dict(known[1]["energies"])
        for kind, runs in result["energies"].items():
            energies[kind] = [*energies.get(kind, []), *runs]
        both = {"rivals": {**known[1]["rivals"], **result["rivals"]}, "energies": energies}
        tasks[_task(cell)] = {**known[0], "energies": {**cell["energies"], **known[0]["energies"]}}, both
    return list(tasks.values())


def over_both(
    name: str, settings: Mapping[str, Any], several: Sequence[Sequence[float]], tokens: Sequence[int], *,
    seeds: str = "energy seeds", one: str = "one seed", **more: Any,
) -> Row:  # fmt: skip
    """A figure per token from nats of each prefix, for each seed: over both, as seeds share their prefixes."""
    count = f"{len(tokens)} prefixes"
    over = f"{len(several)} {seeds} and {count}, which they share" if len(several) > 1 else f"{count}, {one}"
    return row_of(name, settings, crossed(several, tokens), over=over, **more)


def less(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The differences of two costs, prefix by prefix."""
    return [a - b for a, b in zip(one, other, strict=True)]


def prefixes_of(key: str | None = None) -> Items:
    """Says over how many prefixes the intervals are: all that are measured, or as many as one part of a run has."""

    def items(row: Row, cells: Sequence[Cell]) -> str:
        cell = cell_of(row, cells)
        count = cell["prefixes"] if key is None else min(cell[key]["prefixes"], cell["prefixes"])
        return f"{count} prefixes, one energy seed"

    return items
