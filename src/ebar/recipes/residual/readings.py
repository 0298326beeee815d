"""What the tables that are read off the same runs have in common: the first seed of every energy has texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import as_estimate

NAMES = {"base": "base LM", "ralm": "RALM", "balm": "BALM", "unit": "UniT", "bit": "BiT", "pretrained": "BiT*"}
BASES = {"transformer": "Transformer", "smollm2": "SmolLM2-135M", "stories260k": "stories260K"}


def named(cell: Any, kind: str) -> dict[str, Any]:
    """What a row is about."""
    return {"corpus": cell["corpus"], "base": BASES[cell["base"]], "model": NAMES[kind]}


def first_runs(results: Sequence[Result]) -> Iterator[tuple[Cell, str, dict[str, Any]]]:
    """Every cell, kind of energy, and the run of its first seed."""
    for cell, result in results:
        for kind, runs in result["energies"].items():
            yield cell, kind, runs[0]


def row_of(
    name: str, cell: Cell, kind: str, tree: Mapping[str, Any], *, document: str | None = None, **more: Any
) -> Row:
    """A figure of one energy, from what JSON made of an estimate."""
    figure = as_estimate(tree)
    assert figure is not None
    return Row(
        name=name,
        settings={**named(cell, kind), **more},
        value=figure.value,
        low=figure.low,
        high=figure.high,
        document=document,
        warning=figure.warning,
    )


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of one base on one corpus, by their name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.settings['base']} on {row.settings['corpus']}", []).append(row)
    return groups
