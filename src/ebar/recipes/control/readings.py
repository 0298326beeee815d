"""From the runs of control to the figures of a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ebar.journeys.control.tune import MODEL, TARGET
from ebar.recipes.experiment import Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots, Line, Panel

MOMENT, LAMBDA, WORTH = "moment", "λ", "effective samples per draw"
BEFORE, STEERED, AFTER, POLICY = "q", "looking ahead, unweighted", "p", "best π"
DISTANCE = "KL(p‖q)"
Figures = Iterator[tuple[str, dict[str, Any], Mapping[str, Any]]]


def figures(results: Sequence[Result]) -> list[Row]:
    """Moments, λ, what a draw is worth, and the curves of tuning; over seeds where there are several."""
    rows = []
    for (case,), runs in grouped(results, ["case"]).items():
        columns = [list(_of_run(case, run)) for _, run in runs]
        for same in zip(*columns, strict=True):
            (name, settings, _), estimates = same[0], [as_estimate(one) for _, _, one in same]
            known = [one for one in estimates if one is not None]
            rows.append(over_seeds(name, settings, known))
    return rows


def _of_run(case: str, run: Mapping[str, Any]) -> Figures:
    checked, tuned = run["checked"], run["tuned"]
    for place, constraint in enumerate(run["constraints"]):
        name = constraint["name"]
        settings = {"case": case, "feature": name, "wanted": constraint["wanted"]}
        for of, column in ((BEFORE, "before"), (STEERED, "steered"), (AFTER, "after")):
            if checked[column] is not None:
                figure = checked[column][name]
                # That every draw has what every draw must have is no cause for a warning.
                told = figure if of != STEERED else {**figure, "warning": None}
                yield MOMENT, {**settings, "of": of}, told
        yield MOMENT, {**settings, "of": POLICY}, tuned["end"][f"mean of {name}"]
        if not constraint["pointwise"]:
            yield LAMBDA, settings, run["lambda"]["intervals"][place]
    for of, figure in checked["effective_samples_per_draw"].items():
        yield WORTH, {"case": case, "of": of}, figure
    yield DISTANCE, {"case": case}, checked["kl_of_p_from_model"]
    for name, curve in tuned["curves"].items():
        for step, figure in zip(tuned["steps"], curve, strict=True):
            yield name, {"case": case, "step": step}, figure


def panels(rows: Sequence[Row]) -> list[Panel | Dots]:
    """Moments reached, what a draw is worth, and four curves over tuning."""
    found: list[Panel | Dots] = []
    for name, label in ((MOMENT, "share of texts"), (WORTH, "effective samples per draw")):
        own = {f"{row.settings['case']}: {row.settings['of']}": as_dot(row) for row in rows if row.name == name}
        found.append(Dots(title=name, x_label=label, rows=own))
    names = list(dict.fromkeys(row.name for row in rows if "step" in row.settings))
    groups = {
        f"{TARGET}, nats per text": [TARGET],
        f"{MODEL}, nats per text": [MODEL],
        "moments of π": [name for name in names if name.startswith("mean of ")],
        "distinct n-grams of π": [name for name in names if name.startswith("distinct-")],
    }
    for title, members in groups.items():
        lines = [line for name in members for line in _lines(name, rows)]
        found.append(Panel(title=title, x_label="step", y_label=title, lines=lines))
    return found


def notes(rows: Sequence[Row]) -> list[str]:
    """Whether p has the moments that were asked for, and how the two divergences are to be read."""
    said = []
    for row in rows:
        if row.name == MOMENT and row.settings["of"] == AFTER and row.low is not None and row.high is not None:
            wanted = float(row.settings["wanted"])
            inside = row.low <= wanted <= row.high
            said.append(
                f"{row.settings['case']}: {wanted} was asked for, and the interval of p's moment "
                f"{'holds it' if inside else '**does not hold it**'}: {row.low:.3f} to {row.high:.3f}."
            )
    said.append(
        f"π begins as q, so {MODEL} begins at 0; where π nears p, it nears {DISTANCE}. What is to fall is {TARGET}."
    )
    return said


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    cell = next(cell for cell in cells if cell["case"] == row.settings["case"])
    if row.name == LAMBDA:
        count = cell["control"]["draws"]
    elif "step" in row.settings or row.settings.get("of") == POLICY:
        count = cell["tuning"]["evaluation_draws"]
    else:
        count = cell["control"]["checks"]
    return f"{count:,} draws, one seed of λ, look-ahead and π"


READING = Reading(items=items, ranges={MOMENT: (0.0, 1.0), WORTH: (0.0, 1.0)})


def _lines(name: str, rows: Sequence[Row]) -> list[Line]:
    lines = []
    for case in dict.fromkeys(row.settings["case"] for row in rows):
        own = [row for row in rows if row.name == name and row.settings["case"] == case]
        if own:
            dots = [as_dot(row) for row in own]
            lines.append(
                Line(
                    name=f"{case}: {name.removeprefix('mean of ')}",
                    x=[float(row.settings["step"]) for row in own],
                    y=[dot.value for dot in dots],
                    low=[dot.low for dot in dots],
                    high=[dot.high for dot in dots],
                )
            )
    return lines
