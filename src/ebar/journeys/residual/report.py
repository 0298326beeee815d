"""The page of a residual model: figures with intervals, curves, energies, and continuations side by side."""

import math
from pathlib import Path

from ebar.journeys.residual.evaluation import Evaluation
from ebar.report.page import Folded, PageFigure, PageTable, Part, Samples, Section, Text, Warnings, write_page
from ebar.report.plots import Line, Panel, plot_panels
from ebar.report.run_page import about_run
from ebar.store.stages import stage_seconds
from ebar.training.train import History

CURVES = {"loss": "nats per chunk", "accuracy": "share classified right", "log_z": "nats", "calibration_error": "share"}
LEVELS = {"log_z": {"optimum": 0.0}, "accuracy": {"chance": 0.5}}
SYSTEMS = {"data": "data", "base": "draws of the base", "joint": "the joint model"}


def write_residual_page(folder: Path, evaluation: Evaluation | None) -> Path:
    """`report.html` in the run folder."""
    seconds = [(name, round(taken, 1)) for name, taken in stage_seconds(folder).items()]
    path = folder / "report.html"
    sections = [
        *([] if evaluation is None else _evaluated(evaluation)),
        Section("Training", [curves(folder / "energy")]),
        Section("How long each stage took", [PageTable(("stage", "seconds"), seconds)]),
        *about_run(folder),
    ]
    write_page(path, f"Residual model {folder.name}", sections)
    return path


def curves(folder: Path) -> Part:
    """Curves of the energy's training; at the optimum log Z is 0."""
    history = History.read(folder) if (folder / "metrics.jsonl").exists() else History()
    panels = []
    for key, unit in CURVES.items():
        known = {"training": history.curve(key), "held out": history.curve(f"validation.{key}")}
        lines = [
            Line(name=name, x=[float(step) for step, _ in points], y=[float(value) for _, value in points])
            for name, points in known.items()
            if points
        ]
        if lines:
            title = key.replace("_", " ")
            panels.append(Panel(title=title, x_label="step", y_label=unit, levels=LEVELS.get(key), lines=lines))
    if not panels:
        return Text("Nothing was logged.")
    return PageFigure(
        plot_panels(panels), "Telling data from the base's draws, on training batches and on held-out chunks."
    )


def _evaluated(evaluation: Evaluation) -> list[Section]:
    perplexity, energies = evaluation.perplexity, evaluation.energies
    prefixes = [
        [row, z.estimate, z.lower, z.upper, _two_digits(k), z.estimate.effective_sample_size]
        for row, (z, k) in enumerate(zip(perplexity.log_z, perplexity.k, strict=True))
    ]
    moves = [[row.draws, row.low, row.value, row.high, row.log_z, row.log_z_upper] for row in perplexity.by_draws]
    middles = [(left + right) / 2 for left, right in zip(energies.edges[:-1], energies.edges[1:], strict=True)]
    lines = [Line(name=name, x=middles, y=list(getattr(energies, key).shares)) for key, name in SYSTEMS.items()]
    histogram = plot_panels([Panel(title="energy", x_label="E", y_label="share", lines=lines)])
    texts: list[Part] = []
    for one in evaluation.continued:
        joint = f"joint (ESS {one.effective_sample_size:.1f}, k̂ {_two_digits(one.k)})"
        beside = [["data", one.data], ["base", one.base], [joint, one.joint]]
        texts += [Samples([f"… {one.prefix[-300:]}"]), PageTable(("", "continuation"), beside)]
    count = f"{len(perplexity.log_z):,} test prefixes, {perplexity.by_draws[-1].draws:,} draws for each."
    header = ("draws", "low", "perplexity", "high", "mean log Z, lower", "upper")
    every = PageTable(("prefix", "log Z", "lower", "upper", "k̂", "ESS"), prefixes)
    return [
        Section("Warnings", [Warnings(evaluation.warnings)]),
        Section("Figures", [Text(count), PageTable(("figure", "value"), list(evaluation.figures().items()))]),
        Section("How it moves with the number of draws", [PageTable(header, moves)]),
        Section("Energies", [PageFigure(histogram, "A joint model that has learnt the data has the data's energies.")]),
        Section("Continuations", texts),
        Section("log Z of each prefix", [Folded("all prefixes", [every])]),
    ]


def _two_digits(k: float) -> str:
    return "–" if math.isnan(k) else f"{k:.2f}"
