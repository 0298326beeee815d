"""The joint model brought back into a plain language model: what is kept of its gain."""

from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Reading, Recorded, Row
from ebar.recipes.residual.readings import about, by_task, doubts, first_runs, prefixes_of, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

JOINT = "joint model"
DIFFERENCE = "nats per token − the base LM's, paired over prefixes"
ONE_TRAINING = (
    "Each student was trained once: its interval speaks for other prefixes, not for another training. The error of "
    "training is not known here."
)


def figures(results: Sequence[Result]) -> list[Row]:
    """The joint model's gain, then each student's."""
    rows = []
    for cell, kind, run in first_runs(results):
        if run["distilled"] is None:
            continue
        rows.append(row_of(DIFFERENCE, cell, kind, run["joint"]["difference"], of=JOINT))
        for name, found in run["distilled"].items():
            rows.append(row_of(DIFFERENCE, cell, kind, found, of=f"student by {name}"))
    return rows


def correct(recorded: Recorded) -> list[Row]:
    """A record of the first format: where Z is not established, neither is the joint model's gain."""
    unsure = doubts(recorded.beside("residual/perplexity"))
    return [
        replace(row, warning=row.warning or unsure.get(about(row))) if row.settings["of"] == JOINT else row
        for row in recorded.rows
    ]


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Gains side by side."""
    return [
        Dots(
            title=title,
            x_label="nats per token − base",
            rows={f"{row.settings['model']}: {row.settings['of']}": as_dot(row) for row in here},
        )
        for title, here in by_task(rows).items()
    ]


RECIPE = Experiment(
    title="The joint model distilled back into a plain language model",
    source="document 002, “Limitations” (the generator is fixed during training); ebar's own",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
    notes=lambda rows: [ONE_TRAINING],
    reading=Reading(items=prefixes_of(), correct=correct),
)
