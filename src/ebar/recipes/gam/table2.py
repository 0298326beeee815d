"""Document 000, Table 2: one run looked at closely, by the authors' settings; at scale cpu it is stopped earlier."""

from collections.abc import Sequence
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.gam.cells import FIGURES, gam_experiment, last
from ebar.recipes.gam.settings import MOTIF, cell_for
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_estimate, over_seeds
from ebar.report.plots import Line, Panel

SIZE = {"demo": 60, "cpu": 5000, "paper": 5000}
# The authors' own figures for this run.
DOCUMENT = {
    "cross-entropy of r": 0.5646, "cross-entropy of P": 0.4662, "cross-entropy of π": 0.4689, "entropy": 0.4491,
    "motif frequency of r": 0.045, "motif frequency of π": 0.9595, "mean length of r": 27.8, "mean length of π": 30.7,
}  # fmt: skip
COEFFICIENTS = (-10.09, -0.151, -0.062, 0.0, -0.142)


def cells(scale: str) -> list[Cell]:
    """One run. At scale cpu π, which learns from 25,000 strings, has fewer epochs."""
    more: dict[str, Any] = {"student_epochs": 15} if scale == "cpu" else {}
    return [cell_for(scale, motif=MOTIF, ft="1001111", size=SIZE[scale], seed=0, matching="rs", **more)]


def figures(results: Sequence[Result]) -> list[Row]:
    """The table's lines."""
    [(_, result)] = results
    rows = [Row(name="entropy", value=result["entropy"], low=result["entropy"], high=result["entropy"],
                document=DOCUMENT["entropy"])]  # fmt: skip
    for name, read in FIGURES.items():
        found = read(result)
        if found is not None:
            rows.append(over_seeds(name, {}, [found], document=DOCUMENT.get(name)))
    fitted = result["lambda"][0]
    for place, name in enumerate(result["names"]):
        interval = as_estimate(fitted["intervals"][place]) if fitted["intervals"] else None
        value = float(fitted["coefficients"][place])
        document = COEFFICIENTS[place] if len(result["names"]) == len(COEFFICIENTS) else None
        rows.append(over_seeds(f"λ of {name}", {}, [value], single=interval, document=document))
    for who in ("r", "π"):
        for name in result["names"]:
            found = as_estimate(last(result, who)["moments"][name])
            assert found is not None
            rows.append(over_seeds(f"moment of {name}", {"model": who}, [found]))
    rows += [
        Row(name=f"moment of {name}", settings={"model": "truth"}, value=value, low=value, high=value)
        for name, value in (result["true_moments"] or {}).items()
    ]
    rows += [
        Row(name="example", settings={"model": who, "text": text}, value=None, low=None, high=None)
        for who, texts in result["examples"].items()
        for text in texts[:1]
    ]
    return rows


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Moments of each feature."""
    lines = []
    for who in ("truth", "r", "π"):
        own = [row for row in rows if row.name.startswith("moment of") and row.settings.get("model") == who]
        lines.append(
            Line(name=who, x=[float(place) for place in range(1, len(own) + 1)], y=[row.value or 0.0 for row in own],
                 low=[row.low or 0.0 for row in own], high=[row.high or 0.0 for row in own], dashed=who == "truth")
        )  # fmt: skip
    return [Panel(title="Feature moments", x_label="feature, in the order of ft", y_label="mean", lines=lines)]


RECIPE = gam_experiment(
    title="One run by the authors' way: motif 10001011111000, ft 1001111, |D| = 5000, rs",
    source="document 000, Table 2 and the authors' recorded run",
    cells=cells,
    figures=figures,
    panels=panels,
    reading=Reading(elsewhere=lambda cells: "and the authors' run"),
)
