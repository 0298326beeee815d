"""What a journey came to, for people: figures side by side, and one self-contained page."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ebar.automata import measures
from ebar.data.corpora import read_corpus
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.evaluation.moments import true_moment
from ebar.features.feature import Feature, Features
from ebar.features.regular import Motif
from ebar.journeys.gam.journey import Journey, Round
from ebar.journeys.gam.measure import Measured, Model
from ebar.report.marks import spans_in, title_of
from ebar.report.page import (
    Beside,
    Figure,
    Folded,
    Legend,
    Part,
    Samples,
    Section,
    Table,
    Text,
    Warnings,
    write_page,
)
from ebar.report.plots import Dots, Line, Panel, draw
from ebar.report.run_page import curve, flat
from ebar.training.moment_matching import Fitted
from ebar.types import Estimate

COST, EXACT, RATIO = "cross-entropy on test data", "cross-entropy over the language", "cross-entropy / H"
MOTIF, LENGTH = "motif frequency", "mean length, end included"
KEYS = {
    COST: "cross_entropy",
    EXACT: "exact_cross_entropy",
    RATIO: "cross_entropy_over_entropy",
    MOTIF: "motif_frequency",
    LENGTH: "mean_length",
}  # in JSON
SHOWN = 12  # samples of each kind
SMALLEST = 1e-16  # shown on a logarithmic scale

Column = dict[str, Estimate]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures, each with its interval, in nats per token. P_λ's frequencies are those of the samples drawn."""

    entropy: float | None
    titles: list[str]
    models: dict[str, Column]  # the language or the data first, then r, P_λ and π of each round
    features: list[str]
    moments: dict[str, Column]  # by whose they are: the data's, the truth's, r's …
    coefficients: list[list[Estimate]]  # λ, by round
    fitted: list[Fitted]
    distances: Column
    divergence: Estimate
    acceptance_rate: Estimate | None
    seconds: dict[str, float]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "entropy_per_token": self.entropy,
            "models": {
                name: {KEYS[title]: figure._asdict() for title, figure in column.items() if title in KEYS}
                for name, column in self.models.items()
            },
            "features": self.features,
            "moments": {name: _plain(column) for name, column in self.moments.items()},
            "lambda": [
                {name: one._asdict() for name, one in zip(self.features, row, strict=True)} for row in self.coefficients
            ],
            "matching": [fitted.to_dict() for fitted in self.fitted],
            "moment_distances": _plain(self.distances),
            "kl_of_pi_from_p": self.divergence._asdict(),
            "acceptance_rate": None if self.acceptance_rate is None else self.acceptance_rate._asdict(),
            "seconds": self.seconds,
            "warnings": self.warnings,
        }


def figures_of(journey: Journey, measured: Measured) -> Figures:
    """What was measured, arranged to be compared."""
    features = journey.features.names
    truth = None if measured.true_moments is None else {n: Estimate.exact(v) for n, v in measured.true_moments.items()}
    models = {"data" if journey.corpus.language is None else "language": _yardstick(journey, measured)}
    moments = {"data": measured.data_moments} | ({} if truth is None else {"language": truth})
    for name, model in measured.models.items():
        shown = name.replace("P", "P_λ")
        drawn = _drawn(journey, model, name)
        models[shown] = _column(model, drawn, measured.entropy)
        moments[shown] = {feature: drawn[feature] for feature in features}
    if MOTIF not in models["r"]:  # nothing else tells whether a model has what it should have
        for name, column in models.items():
            source = moments.get(name)
            column.update({} if source is None else {f"mean of {feature}": source[feature] for feature in features})
    titles = list(dict.fromkeys(title for column in models.values() for title in column))
    order = [COST, EXACT, RATIO, MOTIF]
    return Figures(
        entropy=measured.entropy,
        titles=sorted(titles, key=lambda title: order.index(title) if title in order else len(order)),
        models=models,
        features=features,
        moments=moments,
        coefficients=[_coefficients(fitted) for fitted in measured.fitted],
        fitted=list(measured.fitted),
        distances=measured.distances,
        divergence=measured.divergence,
        acceptance_rate=measured.acceptance_rate,
        seconds=measured.seconds,
        warnings=_said_once(measured.warnings),
    )


def _column(model: Model, drawn: Column, entropy: float | None) -> Column:
    best = model.cross_entropy if model.exact is None else model.exact
    found = {
        COST: model.cross_entropy,
        EXACT: model.exact,
        RATIO: None if entropy is None else _over(best, entropy),
        MOTIF: drawn.get(MOTIF),
        LENGTH: drawn[LENGTH],
    }
    return {title: figure for title, figure in found.items() if figure is not None}


def _yardstick(journey: Journey, measured: Measured) -> Column:
    """What a perfect model would have."""
    language = journey.corpus.language
    if language is None or measured.entropy is None:
        return {LENGTH: mean_length(journey.corpus.train)}
    truth, entropy = language.distribution(), Estimate.exact(measured.entropy)
    motif = _motif(journey)
    found = {COST: entropy, EXACT: entropy, RATIO: Estimate.exact(1.0)}
    if measured.models["r"].exact is None:
        del found[EXACT]
    if motif is not None:
        found[MOTIF] = Estimate.exact(true_moment(truth, motif))
    return {**found, LENGTH: Estimate.exact(measures.mean_length(truth))}


def _drawn(journey: Journey, model: Model, name: str) -> Column:
    """The moments, motif frequency and length of a model's own draws; those of P_λ are on the disk."""
    if model.mean_length is not None:
        found = {**model.moments, LENGTH: model.mean_length}
        return found if model.motif_frequency is None else {**found, MOTIF: model.motif_frequency}
    number = int(name.split(" ")[1]) if " " in name else 1
    lines = read_corpus(_samples(journey.rounds[number - 1]), journey.corpus.alphabet, journey.corpus.space)
    motif = _motif(journey)
    found = {**frequencies(lines, journey.features), LENGTH: mean_length(lines)}
    return found if motif is None else {**found, MOTIF: frequencies(lines, Features([motif]))[motif.name]}


def _motif(journey: Journey) -> Motif | None:
    corpus = journey.corpus
    if corpus.language is None or corpus.language.motif is None:
        return None
    return Motif(corpus.language.motif).bind(corpus.reading)


def _samples(one: Round) -> Path:
    return one.folder.parent / "distilled.txt"


def _coefficients(fitted: Fitted) -> list[Estimate]:
    if fitted.intervals:
        return list(fitted.intervals)
    unknown = "this method gives no interval"
    return [Estimate(value, float("-inf"), float("inf"), 0.0, unknown) for value in fitted.coefficients.tolist()]


def _said_once(warnings: list[str]) -> list[str]:
    """What is said of several figures, in one sentence that names them. What is said of λ stands by itself."""
    found = [warning for warning in warnings if warning.startswith("λ")]
    places: dict[str, list[str]] = {}
    for warning in warnings:
        if warning not in found:
            place, _, words = warning.partition(": ")
            for sentence in words.split("; "):
                places.setdefault(sentence, []).append(re.sub(r"\bP\b", "P_λ", place))
    return found + [f"{', '.join(where)}: {sentence}" for sentence, where in places.items()]


def _over(figure: Estimate, divisor: float) -> Estimate:
    return figure._replace(value=figure.value / divisor, low=figure.low / divisor, high=figure.high / divisor)


def _plain(column: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: figure._asdict() for name, figure in column.items()}


def write_gam_page(journey: Journey, figures: Figures, *, seed: int) -> Path:
    """`report.html` in the folder of the journey."""
    folder = journey.folder
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    sections = [
        Section("Warnings", [Warnings(figures.warnings)]),
        Section("What was asked", [*_asked(journey, yaml.safe_load(config))]),
        Section("r, P_λ and π", _compared(figures)),
        Section("How much each feature counts", _lambda(figures)),
        Section("Moments", _moments(figures)),
        Section("Learning", _learning(journey, figures)),
        Section("Samples", _marked(journey, seed)),
        Section("Time", [Table(("stage", "seconds"), [(name, round(s, 1)) for name, s in figures.seconds.items()])]),
        Section(
            "To do it again",
            [
                Folded("The whole configuration", [Samples(config.splitlines())]),
                Folded("Where it was run", [Table(("what", "value"), flat(environment))]),
            ],
        ),
    ]
    path = folder / "report.html"
    write_page(path, f"GAM {folder.name}", sections)
    return path


def _asked(journey: Journey, config: Mapping[str, Any]) -> list[Part]:
    corpus = journey.corpus
    sizes = (len(x.lengths) for x in (corpus.train, corpus.validation, corpus.test))
    options = ", ".join(f"{key} {value}" for key, value in config["data"].items() if value is not None)
    rows = [
        ("data", options),
        ("sequences", "{:,} to train on, {:,} for early stopping, {:,} to test".format(*sizes)),
        ("features", "; ".join(journey.features.names)),
        ("r", ", ".join(f"{key} {value}" for key, value in config["backbone"].items() if value is not None)),
        ("λ by", config["matching"]["kind"]),
        ("samples of P_λ", "{size:,}, proposed from {proposal}".format(**config["distillation"])),
        ("π", "begins with random weights" if config["fresh"] else "begins with r's weights"),
        ("regime", f"{config['regime']}, rounds: {config['rounds']}"),
        ("seed", config["seed"]),
    ]
    return [Table(("what", "value"), rows)]


def _compared(figures: Figures) -> list[Part]:
    rows = [[title, *(column.get(title, "–") for column in figures.models.values())] for title in figures.titles]
    near: list[tuple[str, object]] = [
        (f"ℓ1 distance of moments, {name}", distance) for name, distance in figures.distances.items()
    ]
    near.append(("KL(p‖π), nats per sequence", figures.divergence))
    near += [] if figures.acceptance_rate is None else [("acceptance rate of the samples", figures.acceptance_rate)]
    about = "Nats per token, with 95 % intervals. Frequencies of P_λ are those of the samples drawn from it."
    return [Text(about), Table(("", *figures.models), rows), Table(("how near", "value"), near)]


def _lambda(figures: Figures) -> list[Part]:
    rounds = [f"round {number}" for number in range(1, len(figures.fitted) + 1)]
    titles = ["λ"] if len(rounds) == 1 else [f"λ, {title}" for title in rounds]
    rows = [
        [name, *(row[place] for row in figures.coefficients)] for place, name in enumerate(figures.features)
    ]  # fmt: skip
    plots: list[tuple[str, Part]] = []
    for title, row, fitted in zip(titles, figures.coefficients, figures.fitted, strict=True):
        dots = Dots(title=title, x_label="λ", rows=dict(zip(figures.features, row, strict=True)))
        plots.append(("", Figure(draw([dots]), "Dotted where the data set no bound.")))
        plots.append(("", _trace(fitted)))
    about = "P_λ(x) = r(x)·exp⟨λ, φ(x)⟩: a feature with λ = 2 makes a sequence e² times likelier than under r."
    return [Text(about), Table(("feature", *titles), rows), Beside(plots)]


def _trace(fitted: Fitted) -> Part:
    values = [max(value, SMALLEST) for value in fitted.trace]
    if not values:
        return Text("Nothing is known of the way λ was found.")
    line = Line(name="ℓ1 distance", x=[float(at) for at in range(len(values))], y=values)
    name = "iteration" if fitted.method == "newton" else "epoch"
    panel = Panel(title=f"Moments of P_λ and data, {fitted.method}", x_label=name, y_label="ℓ1 distance",
                  lines=[line], log_y=True)  # fmt: skip
    return Figure(draw([panel]), f"Training-1: {fitted.draws:,} draws, {fitted.seconds:.1f} s.")


def _moments(figures: Figures) -> list[Part]:
    rows = [[name, *(column[name] for column in figures.moments.values())] for name in figures.features]
    about = "The mean of each feature: what it should be, under r, in the samples of P_λ, and under π."
    return [Text(about), Table(("feature", *figures.moments), rows)]


def _learning(journey: Journey, figures: Figures) -> list[Part]:
    levels = None if figures.entropy is None else {"H": figures.entropy}
    found: list[tuple[str, Part]] = [("", curve(journey.folder / "r", "r", levels))]
    for number, one in enumerate(journey.rounds, 1):
        suffix = "" if len(journey.rounds) == 1 else f", round {number}"
        found.append(("", curve(one.folder, f"π{suffix}", levels)))
        refined = one.folder.parent / "refined"
        if (refined / "metrics.jsonl").exists():
            found.append(("", curve(refined, f"π refined on the data{suffix}", levels)))
    return [Beside(found)]


def _marked(journey: Journey, seed: int) -> list[Part]:
    corpus, motif = journey.corpus, _motif(journey)
    features: list[Feature] = [*([] if motif is None else [motif]), *journey.features.features]
    features = list({title_of(feature): feature for feature in reversed(features)}.values())[::-1]
    found: list[tuple[str, Part]] = []
    for name, drawn in journey.examples(SHOWN, seed=seed).items():
        lines = corpus.text(drawn)
        marks = [spans_in(line, features, corpus.alphabet) for line in lines]
        found.append((name.replace("P", "P_λ"), Samples(lines, marks)))
    return [Legend([title_of(feature) for feature in features]), Beside(found)]
