"""Where energies lie on data, on the base's text and on the joint model's."""

from collections.abc import Sequence

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.residual.readings import by_task, first_runs, prefixes_of, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

MEDIAN = "median energy, and 5 % to 95 %"
GAP = "mean energy, text − data, paired over prefixes"


def figures(results: Sequence[Result]) -> list[Row]:
    """Means, the gaps to data, and what a search without the base finds."""
    rows = []
    for cell, kind, run in first_runs(results):
        found = run["distributions"]
        for system in ("data", "base", "joint"):
            rows.append(row_of("mean energy", cell, kind, found[system]["mean"], text=system))
            low, median, high = (float(found[system]["quantiles"][place]) for place in (0, 2, 4))
            rows.append(row_of(MEDIAN, cell, kind, _spread(median, low, high), text=system))
        for system in ("base", "joint"):
            rows.append(row_of(GAP, cell, kind, found[f"{system}_gap"], text=system))
        for name, energy, log_q, share in run["search"]["rows"]:
            text = {"data": "data", "start": "random tokens", "found": "what a search of E alone finds"}[name]
            rows.append(row_of("energy, searched", cell, kind, energy, text=text))
            rows.append(row_of("log q per token, searched", cell, kind, log_q, text=text))
            rows.append(row_of("share taken for real, searched", cell, kind, share, text=text))
    return rows


def items(row: Row, cells: Sequence[Cell]) -> str:
    """The spread of energies is no interval of their median."""
    if row.name == MEDIAN:
        return "no interval: the quantiles 5 % and 95 % of the energies"
    named = prefixes_of("search" if row.name.endswith(", searched") else None)
    assert not isinstance(named, str)
    return named(row, cells)


def _spread(value: float, low: float, high: float) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high, "effective_sample_size": float("nan"), "warning": None}


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Gaps to the data: the joint model's is to be 0."""
    found = []
    gaps = [row for row in rows if row.name == GAP]
    for title, here in by_task(gaps).items():
        named_rows = {f"{row.settings['model']}, {row.settings['text']}": as_dot(row) for row in here}
        found.append(Dots(title=title, x_label="mean energy − that of data", rows=named_rows))
    return found


RECIPE = Experiment(
    title="Energies of data, of the base's text and of the joint model's",
    source="document 002, “Energy Distribution”; and the failed search that motivates it",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
    reading=Reading(items=items, ranges={"share taken for real, searched": (0.0, 1.0)}),
)
