"""How much texts repeat: unique n-grams of data, of the base and of the joint model."""

from collections.abc import Sequence

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Reading, Row
from ebar.recipes.residual.readings import by_task, first_runs, prefixes_of, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

SHARE = "unique share of n-grams"
DIFFERENCE = "unique share of n-grams, joint − base LM, paired over prefixes"


def figures(results: Sequence[Result]) -> list[Row]:
    """One continuation of each prefix from each system."""
    rows = []
    for cell, kind, run in first_runs(results):
        for system, orders in run["ngrams"]["ratios"].items():
            for n, found in orders.items():
                rows.append(row_of(SHARE, cell, kind, found["pooled"], system=system, n=int(n)))
        rows += [row_of(DIFFERENCE, cell, kind, found, n=int(n)) for n, found in run["ngrams"]["difference"].items()]
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    found = []
    differences = [row for row in rows if row.name == DIFFERENCE]
    for title, here in by_task(differences).items():
        named_rows = {f"{row.settings['model']}, n = {row.settings['n']}": as_dot(row) for row in here}
        found.append(Dots(title=title, x_label="unique n-grams, joint − base", rows=named_rows))
    return found


RECIPE = Experiment(
    title="Unique n-grams of the joint model's text",
    source="document 002, “Unique Ratio of Ngrams”, whose definition is not given: distinct / total, pooled",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
    reading=Reading(items=prefixes_of(), ranges={SHARE: (0.0, 1.0)}),
)
