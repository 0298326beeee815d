"""What control comes to: figures as data, and for people one self-contained page for λ, one for π."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ebar.estimators.effective_samples import Budget, EffectiveSamples
from ebar.journeys.control.constraints import Constraints
from ebar.report.page import Beside, Folded, PageFigure, PageTable, Part, Samples, Section, Text, Warnings, write_page
from ebar.report.plots import Dots, Line, Panel, plot_panels
from ebar.store.writing import plain
from ebar.training.moment_matching.matching import Fitted
from ebar.types import Estimate

TARGET, MODEL = "KL(p‖π)", "KL(π‖q)"
MOMENTS = ("feature", "wanted", "λ", "under q", "looking ahead, unweighted", "under p")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What fresh draws say of a controlled model."""

    before: dict[str, Estimate]  # moments of q
    steered: dict[str, Estimate] | None  # of draws that look ahead, without their weights
    after: dict[str, Estimate]  # of p
    effective_samples_per_draw: dict[str, EffectiveSamples]  # of draws of q, and of draws that look ahead
    log_z: Estimate
    kl_of_p_from_model: Estimate
    texts: dict[str, list[str]]
    budgets: dict[str, Budget | str] | None = None  # draws for a wanted half-width, or why that cannot be said

    def distances(self) -> dict[str, object]:
        """log Z, KL(p‖q), and effective samples per draw."""
        found: dict[str, object] = {"log Z": self.log_z, "KL(p‖q), nats per text": self.kl_of_p_from_model}
        for name, one in self.effective_samples_per_draw.items():
            found |= {f"effective samples per draw, {name}": one.per_draw, f"distinct draws, {name}": one.counts}
        return found


class Way(NamedTuple):
    """How near one method of tuning came to p, and in what time."""

    distance: Estimate  # KL(p‖π)
    moments: dict[str, Estimate]  # of π
    seconds: float
    nats_per_second: float  # by which KL(p‖π) fell
    best_step: int
    stopped: str


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A model π of its own, and how near to p it came."""

    model: Any = None  # π with its best weights
    folder: Path | None
    start: dict[str, Estimate]  # of π before the first step, which is q
    end: dict[str, Estimate]  # of the best π
    target: dict[str, Estimate]  # of p, on the draws that KL(p‖π) is measured on
    best_step: int
    steps: list[int]
    curves: dict[str, list[Estimate]]  # over the steps, the start included
    texts: list[str]
    drawn: str  # how many of those draws are different
    method: str = "policy_gradient"
    learning_rate: float | None = None
    stopped: str = "all steps were made"  # why it ended
    seconds: float = 0.0  # of tuning and of drawing for it, over all starts; judging π is not among them
    ways: dict[str, "Way"] | None = None  # where both methods were tried

    @property
    def way(self) -> "Way":
        """How far this method came, and in what time."""
        gained = self.start[TARGET].value - self.end[TARGET].value
        moments = {name: one for name, one in self.end.items() if name.startswith("mean of ")}
        rate = gained / self.seconds if self.seconds > 0 else math.nan
        return Way(self.end[TARGET], moments, self.seconds, rate, self.best_step, self.stopped)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures = {name: plain(value) for name, value in vars(self).items() if name not in ("model", "folder", "drawn")}
        saved = {} if self.folder is None else {"model": str(self.folder / "model")}
        return {**figures, "draws for p": self.drawn, **saved}

    def rows(self) -> list[list[object]]:
        """Each figure: of q, of the best π, of p."""
        return [[name, one, self.end[name], self.target.get(name, "–")] for name, one in self.start.items()]


def write_fit_page(folder: Path, constraints: Constraints, fitted: Fitted, checked: Checked) -> Path:
    """`report.html` of a controlled model."""
    known = {name: one.per_draw for name, one in checked.effective_samples_per_draw.items()}
    known = {name: one for name, one in known.items() if not math.isnan(one.value)}
    dots = [
        Dots(title="Moments of p", x_label="share of texts", rows=checked.after),
        Dots(title="Effective samples per draw", x_label="samples per draw", rows=known),
    ]
    about = (
        "P(x) = q(x)·exp⟨λ, φ(x)⟩ is the nearest model to q with these moments. What is forbidden has λ = −∞. "
        "Moments are of fresh draws, which λ was not found by."
    )
    figures: dict[str, object] = {**checked.before, **checked.distances()}
    said = [f"{name}: {one.warning}" for name, one in figures.items() if isinstance(one, Estimate) and one.warning]
    rows = moment_rows(constraints, fitted, checked)
    sections = [
        Section("Warnings", [Warnings(lambda_warnings(fitted) + said)]),
        Section("What is wanted", [Text(about), PageTable(MOMENTS, rows), PageFigure(plot_panels(dots))]),
        Section("How far p is from q", [PageTable(("figure", "value"), list(checked.distances().items()))]),
        Section("Texts", [Beside([(name, _lines(texts)) for name, texts in checked.texts.items()])]),
    ]
    return _write(folder, f"Control {folder.name}", sections)


def moment_rows(constraints: Constraints, fitted: Fitted, checked: Checked) -> list[list[object]]:
    """Each feature: its wanted moment, its λ, and its moments before and after."""
    rows: list[list[object]] = []
    for constraint, interval in zip(constraints, fitted.intervals, strict=True):
        name = constraint.feature.name
        steered = "–" if checked.steered is None else checked.steered[name]._replace(warning=None)
        count = "must be" if constraint.moment == 1 else "must not be"
        shown: object = count if constraint.pointwise else interval
        rows.append([name, constraint.moment, shown, checked.before[name], steered, checked.after[name]])
    return rows


def lambda_warnings(fitted: Fitted) -> list[str]:
    """All that lambda.json warns of, once each; that a hard constraint does what it is there for is no warning."""
    hard = {one.warning for one in fitted.intervals if one.value == -math.inf}
    whole = [warning for warning in fitted.warnings if warning not in hard]
    of_draws = "of the draws that λ was found by"
    named = {
        **{f"{name}, {of_draws}, under q": one for name, one in zip(fitted.names, fitted.base_moments, strict=True)},
        **{f"{name}, {of_draws}, under p": one for name, one in zip(fitted.names, fitted.model_moments, strict=True)},
        **{f"λ of {name}": one for name, one in zip(fitted.names, fitted.intervals, strict=False)},
        f"log Z, {of_draws}": fitted.log_z,
    }
    said = {None, "", *hard, *whole}
    return [*whole, *(f"{name}: {one.warning}" for name, one in named.items() if one.warning not in said)]


def write_tune_page(folder: Path, tuned: Tuned) -> Path:
    """`report.html` of a tuned model."""
    panels = curves(tuned.steps, tuned.curves)
    how = f"By {tuned.method.replace('_', ' ')}, learning rate {tuned.learning_rate or math.nan:g}: {tuned.stopped}."
    which = f"of step {tuned.best_step}" if tuned.best_step else "q itself: no step came nearer"
    about = (
        f"π begins as q. The best one, by KL(p‖π), is {which}. All with 95 % intervals. Draws for p, that π is judged "
        f"by: {tuned.drawn}."
    )
    sections = [
        Section("Figures", [Text(about), Text(how), PageTable(("figure", "before", "best π", "p"), tuned.rows())]),
        Section("Over the steps", [PageFigure(plot_panels(panels[:2])), PageFigure(plot_panels(panels[2:]))]),
        Section("Texts of π", [_lines(tuned.texts)]),
    ]
    return _write(folder, "Tuning", sections)


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


def _write(folder: Path, title: str, sections: list[Section]) -> Path:
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    again = Section("To do it again", [Folded("The whole configuration", [Samples(config.splitlines())])])
    path = folder / "report.html"
    write_page(path, title, [*sections, again])
    return path
