"""The page of a GAM: its figures side by side, self-contained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ebar.features.feature import Feature
from ebar.journeys.gam.conditional import source_text
from ebar.journeys.gam.figures import GamFigures, examples, motif_of
from ebar.journeys.gam.settings import GamParts
from ebar.report.page import (
    Beside,
    Folded,
    Legend,
    PageFigure,
    PageTable,
    Part,
    Samples,
    Section,
    Text,
    Warnings,
    write_page,
)
from ebar.report.plots import Dots, Line, Panel, plot_panels, spans_in, title_of
from ebar.report.run_page import curve, flattened_tree
from ebar.training.moment_matching.matching import Fitted
from ebar.training.train import History

SHOWN = 12  # samples of each kind
SMALLEST = 1e-16  # shown on a logarithmic scale


def write_gam_page(path: Path, made: GamParts, figures: GamFigures, histories: Mapping[str, History]) -> None:
    """Writes the page, with the curves of all trainings."""
    levels = None if figures.entropy is None else {"H": figures.entropy}
    sections = [
        Section("Warnings", [Warnings(figures.warnings)]),
        Section("What was asked", [_asked(made)]),
        Section("r, P_λ and π", _compared(figures)),
        Section("How much each feature counts", _lambda(figures)),
        Section("Moments", _moments(figures)),
        Section("Learning", [Beside([("", curve(log, name, levels)) for name, log in histories.items()])]),
        Section("Samples", _marked(made)),
        Section(
            "Time", [PageTable(("stage", "seconds"), [(name, round(s, 1)) for name, s in figures.seconds.items()])]
        ),
        Section(
            "To do it again",
            [
                Folded("The whole configuration", [Samples(made.config.splitlines())]),
                Folded("Where it was run", [PageTable(("what", "value"), flattened_tree(made.environment))]),
            ],
        ),
    ]
    write_page(path, f"GAM {path.resolve().parent.name}", sections)


def _asked(gam: GamParts) -> Part:
    data, settings, base = gam.data, gam.settings, gam.rounds[0].base
    sizes = (len(x.lengths) for x in (data.train, data.validation, data.test))
    made: Mapping[str, Any] = getattr(base, "origin", None) or {}
    rows = [
        ("data", _options(data.origin or {})),
        ("sequences", "{:,} to train on, {:,} for early stopping, {:,} to test".format(*sizes)),
        ("features", "; ".join(gam.features.names)),
        ("r", _options(made.get("backbone", {})) or type(base).__name__),
        ("λ by", gam.rounds[0].fitted.method),
        ("samples of P_λ", "{size:,}, proposed from {proposal}".format(**settings["distillation"])),
        ("π", "begins with random weights" if settings["fresh"] else "begins with r's weights"),
        ("regime", f"{settings['regime']}, rounds: {settings['rounds']}"),
        ("seed", settings["seed"]),
    ]
    return PageTable(("what", "value"), rows)


def _options(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in tree.items() if value is not None)


def _compared(figures: GamFigures) -> list[Part]:
    rows = [[title, *("–" if one is None else one for one in row)] for title, row in figures.table().items()]
    near: list[tuple[str, object]] = [
        (f"ℓ1 distance of moments, {name}", distance) for name, distance in figures.distances.items()
    ]
    near.append(("KL(p‖π), nats per sequence", figures.divergence))
    near += [] if figures.acceptance_rate is None else [("acceptance rate of the samples", figures.acceptance_rate)]
    about = "Nats per token, with 95 % intervals. Frequencies of P_λ are those of the samples drawn from it."
    return [Text(about), PageTable(("", *figures.models), rows), PageTable(("how near", "value"), near)]


def _lambda(figures: GamFigures) -> list[Part]:
    rounds = [f"round {number}" for number in range(1, len(figures.fitted) + 1)]
    titles = ["λ"] if len(rounds) == 1 else [f"λ, {title}" for title in rounds]
    rows = [[name, *(row[place] for row in figures.coefficients)] for place, name in enumerate(figures.features)]
    plots: list[tuple[str, Part]] = []
    for title, row, fitted in zip(titles, figures.coefficients, figures.fitted, strict=True):
        dots = Dots(title=title, x_label="λ", rows=dict(zip(figures.features, row, strict=True)))
        plots.append(("", PageFigure(plot_panels([dots]), "Dotted where the data set no bound.")))
        plots.append(("", _trace(fitted)))
    about = "P_λ(x) = r(x)·exp⟨λ, φ(x)⟩: a feature with λ = 2 makes a sequence e² times likelier than under r."
    return [Text(about), PageTable(("feature", *titles), rows), Beside(plots)]


def _trace(fitted: Fitted) -> Part:
    values = [max(value, SMALLEST) for value in fitted.trace]
    if not values:
        return Text("Nothing is known of the way λ was found.")
    line = Line(name="ℓ1 distance", x=[float(at) for at in range(len(values))], y=values)
    name = "iteration" if fitted.method == "newton" else "epoch"
    panel = Panel(title=f"Moments of P_λ and data, {fitted.method}", x_label=name, y_label="ℓ1 distance",
                  lines=[line], log_y=True)  # fmt: skip
    return PageFigure(plot_panels([panel]), f"Training-1: {fitted.draws:,} draws, {fitted.seconds:.1f} s.")


def _moments(figures: GamFigures) -> list[Part]:
    rows = [[name, *(column[name] for column in figures.moments.values())] for name in figures.features]
    about = "The mean of each feature: what it should be, under r, in the samples of P_λ, and under π."
    return [Text(about), PageTable(("feature", *figures.moments), rows)]


def _marked(made: GamParts) -> list[Part]:
    data, drawn = made.data, examples(made, SHOWN)
    if (context := data.sources("test")) is not None:
        sources = source_text(data, context.select(torch.arange(min(SHOWN, context.rows))))
        return [Beside([("source", Samples(sources)), *((name, Samples(data.text(x))) for name, x in drawn.items())])]
    motif = motif_of(data)
    shown: list[Feature] = [*([] if motif is None else [motif]), *made.features.features]
    shown = list({title_of(feature): feature for feature in reversed(shown)}.values())[::-1]
    found: list[tuple[str, Part]] = []
    for name, x in drawn.items():
        lines = data.text(x)
        found.append((name, Samples(lines, [spans_in(line, shown, data.alphabet) for line in lines])))
    return [Legend([title_of(feature) for feature in shown]), Beside(found)]
