"""How often a fresh discriminator takes the base's text, and the joint model's, for real."""

from collections.abc import Sequence

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.recipes.residual.readings import first_runs, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

PROTOCOLS = {"same": "one, trained against the base", "own": "each trained against its own"}
DOCUMENT = {
    ("base", "false_positive_rate"): "17.8 %", ("base", "accuracy"): "89.9 %",
    ("joint", "false_positive_rate"): "31.8 %", ("joint", "accuracy"): "82.9 %",
}  # fmt: skip
DIFFERENCE = "false positive rate, joint − base LM, paired over prefixes"


def figures(results: Sequence[Result]) -> list[Row]:
    """Both protocols, both systems."""
    rows = []
    for cell, kind, run in first_runs(results):
        for protocol, judge in PROTOCOLS.items():
            found = run["fooling"][protocol]
            for system in ("base", "joint"):
                for name in ("false_positive_rate", "accuracy"):
                    told = DOCUMENT[system, name] if protocol == "same" else None
                    label = name.replace("_", " ")
                    rows.append(
                        row_of(label, cell, kind, found[system][name], document=told, judge=judge, system=system)
                    )
            rows.append(row_of(DIFFERENCE, cell, kind, found["difference"], judge=judge))
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    differences = [row for row in rows if row.name == DIFFERENCE]
    named_rows = {
        f"{row.settings['base']}, {row.settings['corpus']}, {row.settings['model']}; {row.settings['judge']}": as_dot(
            row
        )
        for row in differences
    }
    return [Dots(title="how much oftener a discriminator is fooled", x_label="joint − base", rows=named_rows)]


RECIPE = Experiment(
    title="Are the joint model's texts harder to tell from real ones?",
    source="document 002, “Are generations from P_joint harder to discriminate?”",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
)
