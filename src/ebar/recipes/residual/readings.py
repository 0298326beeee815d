"""What the recipes of Deng et al. 2020 share: their runs, names in their rows, and what their intervals are over."""

from collections.abc import Sequence
from typing import Any

from ebar.recipes.recipe import Cell, Items, Result, Row
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells

PAPER = "Deng et al. 2020"
RUNS: dict[str, Any] = {"grid": cells, "run": run_cell, "runs": "residual/text"}
TASK = ("base", "corpus")
MODEL = (*TASK, "model")
BY_TASK: dict[str, Any] = {"panels": TASK, "title": "{base} on {corpus}"}
NAMES = {"base": "base LM", "ralm": "RALM", "balm": "BALM", "unit": "UniT", "bit": "BiT", "pretrained": "BiT*"}
BASES = {"transformer": "Transformer", "smollm2": "SmolLM2-135M", "stories260k": "stories260K"}


def named(cell: Cell, kind: str) -> dict[str, Any]:
    """What a row is about."""
    return {"corpus": cell["corpus"], "base": BASES[cell["base"]], "model": NAMES[kind]}


def energies_of(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every energy of a cell, as a run of its own."""
    return [
        ({**named(cell, kind), "energy seed": seed, "parameters": run["parameters"]}, run)
        for kind, runs in result["energies"].items()
        for seed, run in enumerate(runs)
    ]


def cell_of(row: Row, cells: Sequence[Cell]) -> Cell:
    """The run that a row is of, with the settings that its energy has of its own."""
    own = {(cell["corpus"], BASES[cell["base"]]): cell for cell in reversed(cells)}
    found = own[row.settings["corpus"], row.settings["base"]]
    kind = next(kind for kind, name in NAMES.items() if name == row.settings["model"])
    return {**found, **found["energies"].get(kind, {}).get("figures", {})}


def prefixes_of(key: str | None = None) -> Items:
    """Says over how many prefixes the intervals are: all of the test text's, or as many as one part of a run has."""

    def items(row: Row, cells: Sequence[Cell]) -> str:
        cell = cell_of(row, cells)
        count = cell["test_chunks"] if key is None else min(cell[key]["prefixes"], cell["test_chunks"])
        return f"{count} prefixes, one energy seed"

    return items
