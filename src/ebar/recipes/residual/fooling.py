"""How often a fresh discriminator takes the base's text, and the joint model's, for real."""

from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.residual.readings import cell_of, first_runs, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

PROTOCOLS = {"same": "one, trained against the base", "own": "each trained against its own"}
DOCUMENT = {
    ("base", "false_positive_rate"): "17.8 %", ("base", "accuracy"): "89.9 %",
    ("joint", "false_positive_rate"): "31.8 %", ("joint", "accuracy"): "82.9 %",
}  # fmt: skip
CHANCE = "the judge is at chance (its accuracy is not shown to be above 0.5): whom it takes for real says little"
RATE, ACCURACY = "false positive rate", "accuracy"
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
    return judged(rows)


def judged(rows: Sequence[Row]) -> list[Row]:
    """A judge that cannot tell real from generated text is said to be one, in each row that rests on it.

    The one trained against the base is measured on the base's text, for that is what it was trained on.
    """
    at_chance = {
        _judge(row, str(row.settings["system"])): row.low <= 0.5
        for row in rows
        if row.name == ACCURACY and row.low is not None
    }
    found = []
    for row in rows:
        systems = [row.settings["system"]] if "system" in row.settings else ["base", "joint"]
        if row.settings["judge"] == PROTOCOLS["same"]:
            systems = ["base"]
        doubtful = any(at_chance.get(_judge(row, str(system)), False) for system in systems)
        found.append(replace(row, warning=row.warning or CHANCE) if doubtful else row)
    return found


def _judge(row: Row, system: str) -> tuple[str, ...]:
    return (*(str(row.settings[key]) for key in ("corpus", "base", "model", "judge")), system)


def correct(recorded: Recorded) -> list[Row]:
    """Records of the first format say nothing of a judge at chance."""
    return judged(recorded.rows)


def notes(rows: Sequence[Row]) -> list[str]:
    """How many judges know anything, and that the document's is another."""
    own = [row for row in rows if row.name == ACCURACY and row.settings["judge"] == PROTOCOLS["own"]]
    # That of the base's text is one judge, whatever energy it is set beside.
    judges = {
        (row.settings["corpus"], row.settings["base"], *((row.settings["model"],) if row.settings["system"] != "base"
         else ()), row.settings["system"]): row.warning == CHANCE
        for row in own
    }  # fmt: skip
    said = [
        f"{sum(judges.values())} of {len(judges)} judges are at chance on the text they were trained against. A "
        "difference between two such judges is one between their thresholds, not between the texts."
    ]
    said.append(
        "The document's figures are those of a far larger discriminator on other text (it takes them from Bakhtin et "
        "al.), whose accuracy is 89.9 % where ours are near 50 %: their levels are not to be compared."
    )
    return said


def items(row: Row, cells: Sequence[Cell]) -> str:
    """Judges are trained on the first half of the prefixes and judge the second."""
    cell = cell_of(row, cells)
    count = min(cell["fooling"]["prefixes"], cell["valid_chunks"])
    return f"{count - count // 2} prefixes, one energy seed, one judge"


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
    notes=notes,
    reading=Reading(
        items=items,
        ranges={RATE: (0.0, 1.0), ACCURACY: (0.0, 1.0)},
        elsewhere=lambda cells: "other text, another judge",
        correct=correct,
    ),
)
