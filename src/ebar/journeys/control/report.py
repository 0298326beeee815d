"""What control came to, for people: one self-contained page for λ, one for π."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ebar.journeys.control.fit import Checked, Controlled
from ebar.journeys.control.tune import MODEL, TARGET, Tuned
from ebar.report.page import Beside, Figure, Folded, Part, Samples, Section, Table, Text, Warnings, write_page
from ebar.report.plots import Dots, Line, Panel, draw
from ebar.training.moment_matching import Fitted
from ebar.types import Estimate


def write_fit_page(folder: Path, controlled: Controlled, checked: Checked) -> Path:
    """`report.html` in the folder of `ebar control fit`."""
    rows = moment_rows(controlled, checked)
    dots = [
        Dots(title="Moments of p", x_label="share of texts", rows=checked.after),
        Dots(title="Effective samples per draw", x_label="samples per draw", rows=_known(checked)),
    ]
    about = (
        "P(x) = q(x)·exp⟨λ, φ(x)⟩ is the nearest model to q with these moments. What is forbidden has λ = −∞. "
        "Moments are of fresh draws, which λ was not found by."
    )
    sections = [
        Section("Warnings", [Warnings(_warnings(controlled, checked))]),
        Section("What is wanted", [Text(about), Table(MOMENTS, rows), Figure(draw(dots))]),
        Section("How far p is from q", [Table(("figure", "value"), distance_rows(checked))]),
        Section("Texts", [Beside([(name, _lines(texts)) for name, texts in checked.texts.items()])]),
        _again(folder),
    ]
    path = folder / "report.html"
    write_page(path, f"Control {folder.name}", sections)
    return path


MOMENTS = ("feature", "wanted", "λ", "under q", "looking ahead, unweighted", "under p")


def moment_rows(controlled: Controlled, checked: Checked) -> list[list[object]]:
    """Each feature: what was wanted, how much it counts, and its moments before and after."""
    rows: list[list[object]] = []
    for place, constraint in enumerate(controlled.constraints):
        name = constraint.feature.name
        steered = "–" if checked.steered is None else checked.steered[name]._replace(warning=None)
        count = "must be" if constraint.moment == 1 else "must not be"
        interval: object = count if constraint.pointwise else controlled.fitted.intervals[place]
        rows.append([name, constraint.moment, interval, checked.before[name], steered, checked.after[name]])
    return rows


def distance_rows(checked: Checked) -> list[tuple[str, object]]:
    """log Z, KL(p‖q), and what a draw is worth."""
    rows: list[tuple[str, object]] = [("log Z", checked.log_z), ("KL(p‖q), nats per text", checked.divergence)]
    for name, one in checked.worth.items():
        rows += [(f"effective samples per draw, {name}", one.per_draw), (f"distinct draws, {name}", one.counts)]
    return rows


def lambda_warnings(fitted: Fitted) -> list[str]:
    """All that lambda.json warns of."""
    of_draws = "of the draws that λ was found by"
    named = {
        **{f"{name}, {of_draws}, under q": one for name, one in zip(fitted.names, fitted.base_moments, strict=True)},
        **{f"{name}, {of_draws}, under p": one for name, one in zip(fitted.names, fitted.model_moments, strict=True)},
        **{f"λ of {name}": one for name, one in zip(fitted.names, fitted.intervals, strict=False)},
        f"log Z, {of_draws}": fitted.log_z,
    }
    return [*fitted.warnings, *(f"{name}: {one.warning}" for name, one in named.items() if one.warning)]


def _known(checked: Checked) -> dict[str, Estimate]:
    found = {name: one.per_draw for name, one in checked.worth.items()}
    return {name: one for name, one in found.items() if not math.isnan(one.value)}


def _warnings(controlled: Controlled, checked: Checked) -> list[str]:
    named = {**checked.before, "log Z": checked.log_z, "KL(p‖q)": checked.divergence}
    named |= {f"effective samples per draw, {name}": one.per_draw for name, one in checked.worth.items()}
    return lambda_warnings(controlled.fitted) + [f"{name}: {one.warning}" for name, one in named.items() if one.warning]


def write_tune_page(folder: Path, tuned: Tuned) -> Path:
    """`report.html` in the folder of `ebar control tune`."""
    rows = [[name, tuned.start[name], tuned.end[name], tuned.target.get(name, "–")] for name in tuned.start]
    panels = curves(tuned.steps, tuned.curves)
    which = f"of step {tuned.best_step}" if tuned.best_step else "q itself: no step came nearer"
    about = (
        f"π begins as q. The best one, by KL(p‖π), is {which}. All with 95 % intervals. Draws for p, that π is judged "
        f"by: {tuned.drawn}."
    )
    sections = [
        Section("Figures", [Text(about), Table(("figure", "before", "best π", "p"), rows)]),
        Section("Over the steps", [Figure(draw(panels[:2])), Figure(draw(panels[2:]))]),
        Section("Texts of π", [_lines(tuned.texts)]),
        _again(folder),
    ]
    path = folder / "report.html"
    write_page(path, "Tuning", sections)
    return path


def curves(steps: Sequence[int], found: Mapping[str, Sequence[Estimate]]) -> list[Panel]:
    """The two divergences, moments and distinct n-grams over the steps."""
    groups = {
        "KL(p‖π), nats per text": [TARGET],
        "KL(π‖q), nats per text": [MODEL],
        "moments of π": [name for name in found if name.startswith("mean of ")],
        "distinct n-grams of π, share of all": [name for name in found if name.startswith("distinct-")],
    }
    return [
        Panel(title=title, x_label="step", y_label=title, lines=[_line(name, steps, found[name]) for name in names])
        for title, names in groups.items()
    ]


def _line(name: str, steps: Sequence[int], curve: Sequence[Estimate]) -> Line:
    return Line(
        name=name.removeprefix("mean of "),
        x=[float(step) for step in steps],
        y=[one.value for one in curve],
        low=[one.low for one in curve],
        high=[one.high for one in curve],
    )


def _lines(texts: Sequence[str]) -> Part:
    return Samples([text.replace("\n", "\\n") for text in texts])


def _again(folder: Path) -> Section:
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    return Section("To do it again", [Folded("The whole configuration", [Samples(config.splitlines())])])
