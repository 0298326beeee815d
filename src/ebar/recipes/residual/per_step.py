"""Perplexity at every place of the continuation under the base and under the joint model; at the last, exactly."""

from collections.abc import Sequence

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.residual.readings import by_task, first_runs, prefixes_of, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.report.plots import Line, Panel

LAST = "nats of the last token"
PLACE = "nats, joint − base LM, paired over prefixes"


def figures(results: Sequence[Result]) -> list[Row]:
    """The last step, where nothing is estimated, then every step."""
    rows = []
    for cell, kind, run in first_runs(results):
        last = run["last_step"]
        scored = "all tokens" if float(last["rest"]) == 0 else "the likeliest tokens, the rest sampled"
        for name, label in (("base", "base LM"), ("joint", "joint"), ("difference", "joint − base LM, paired")):
            rows.append(row_of(f"{LAST}, {label}", cell, kind, last[name], scored=scored))
        rows += [row_of(PLACE, cell, kind, place["difference"], place=place["place"] + 1) for place in run["per_step"]]
    return rows


def items(row: Row, cells: Sequence[Cell]) -> str:
    """Places are measured on fewer prefixes than the last step is."""
    named = prefixes_of("last_step" if row.name.startswith(LAST) else "per_step")
    assert not isinstance(named, str)
    return named(row, cells)


def notes(rows: Sequence[Row]) -> list[str]:
    """What the document says of the last step, and whether it holds here."""
    last = [row for row in rows if row.name == f"{LAST}, joint − base LM, paired"]
    below = [row for row in last if row.high is not None and row.high < 0]
    return [
        "The document: “We know for sure that the final step gets a better PPL”; it gives no figures. Here the "
        f"interval of joint − base at the last step is below 0 for {len(below)} of {len(last)} energies, and holds 0 "
        "or is above it for the others."
    ]


def panels(rows: Sequence[Row]) -> list[Panel]:
    """A line for every energy."""
    found = []
    steps = [row for row in rows if row.name == PLACE]
    for title, here in by_task(steps).items():
        lines = []
        for model in dict.fromkeys(row.settings["model"] for row in here):
            own = [row for row in here if row.settings["model"] == model]
            lines.append(
                Line(
                    name=str(model),
                    x=[float(row.settings["place"]) for row in own],
                    y=[row.value or 0.0 for row in own],
                    low=[row.low if row.low is not None else 0.0 for row in own],
                    high=[row.high if row.high is not None else 0.0 for row in own],
                )
            )
        found.append(
            Panel(
                title=title, x_label="token of the continuation", y_label="nats, joint − base",
                lines=lines, levels={"base LM": 0.0},
            )
        )  # fmt: skip
    return found


RECIPE = Experiment(
    title="Perplexity step by step",
    source="document 002, “Per-Step Perplexity”",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
    notes=notes,
    reading=Reading(items=items),
)
