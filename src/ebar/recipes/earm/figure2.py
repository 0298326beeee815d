"""Figure 2: cross-entropy in training and on held-out data, of the base and of its E-ARM twin."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, elsewhere
from ebar.recipes.earm.translation_settings import cells as all_cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import over_seeds
from ebar.report.plots import Line, Panel

BRANCHES = {"base": "base", "earm": "E-ARM"}
CURVES = {"training": "training nats per token", "validation": "held-out nats per token"}
DIFFERENCE = ", E-ARM − base, paired"
# Of the last epoch, as far as the picture can be read.
DOCUMENT = {"training": "above 0", "validation": "below 0"}


def cells(scale: str) -> list[Cell]:
    """Those of Table 1 with nothing but the cross-entropy beside E-ARM; the document has es→en."""
    wanted = "es→en" if scale == "paper" else "de→en"
    return [cell for cell in all_cells(scale, variants=("base",)) if cell["direction"] == wanted]


def figures(results: Sequence[Result]) -> list[Row]:
    """Both curves by epoch; up to the fork the twins are one, so E-ARM's begin there."""
    rows = []
    start, epochs = results[0][0]["start_epoch"], results[0][0]["epochs"]
    by_epoch = {branch: [of_epochs(result["branches"][branch]["curves"]) for _, result in results]
                for branch in BRANCHES}  # fmt: skip
    for curve, figure in CURVES.items():
        for branch, label in BRANCHES.items():
            for epoch in range(1 if branch == "base" else start, epochs + 1):
                values = [found[curve][epoch] for found in by_epoch[branch] if epoch in found[curve]]
                if values:
                    rows.append(over_seeds(figure, {"system": label, "epoch": epoch}, values))
        for epoch in range(start + 1, epochs + 1):
            pairs = zip(by_epoch["earm"], by_epoch["base"], strict=True)
            both = [(twin[curve][epoch], base[curve][epoch]) for twin, base in pairs if epoch in base[curve]]
            if both:
                differences = [twin - base for twin, base in both]
                told = DOCUMENT[curve] if epoch == epochs else None
                settings = {"system": "E-ARM − base", "epoch": epoch}
                rows.append(over_seeds(figure + DIFFERENCE, settings, differences, document=told))
    return rows


def of_epochs(curves: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """By epoch: held-out cost at its end, and the mean of what training logged in it, where it did."""
    ends = [step for step, _ in curves["validation"]]
    logged: dict[int, list[float]] = {}
    for step, value in curves["training"]:
        epoch = 1 + sum(end < step for end in ends)
        logged.setdefault(epoch, []).append(float(value))
    return {
        "training": {epoch: sum(values) / len(values) for epoch, values in logged.items()},
        "validation": {epoch: float(value) for epoch, (_, value) in enumerate(curves["validation"], 1)},
    }


def panels(rows: Sequence[Row]) -> list[Panel]:
    """The two pictures, with the spread over seeds as a band."""
    found = []
    for figure in CURVES.values():
        lines = [_line(rows, figure, system) for system in BRANCHES.values()]
        title = figure.removesuffix(" nats per token")
        found.append(Panel(title=title, x_label="epoch", y_label="nats per token", lines=lines))
    return found


def _line(rows: Sequence[Row], figure: str, system: str) -> Line:
    own = [row for row in rows if row.name == figure and row.settings["system"] == system and row.value is not None]
    y = [row.value or 0.0 for row in own]
    low, high = [row.low for row in own], [row.high for row in own]
    return Line(
        name=system,
        x=[float(row.settings["epoch"]) for row in own],
        y=y,
        low=[value if end is None else end for value, end in zip(y, low, strict=True)],
        high=[value if end is None else end for value, end in zip(y, high, strict=True)],
    )


RECIPE = Experiment(
    title="Cross-entropy in training and on held-out data, base and E-ARM",
    source="document 003, Figure 2 (IWSLT14, es→en); the runs of earm/table1 without label smoothing",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=replace(
        READING,
        elsewhere=lambda cells: (
            "es→en, read off its picture" if elsewhere(cells) is None else "IWSLT14, es→en, read off its picture"
        ),
    ),
)
