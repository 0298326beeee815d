"""The page of a residual model: figures with intervals, curves, energies, and continuations side by side."""

import json
import math
from pathlib import Path
from typing import Any

from ebar.evaluation.energy_distributions import EnergyDistributions
from ebar.journeys.residual.evaluation import Continued, Evaluation
from ebar.report.page import Figure, Folded, Part, Samples, Section, Table, Text, Warnings, write_page
from ebar.report.plots import Line, Panel, draw
from ebar.report.run_page import flat
from ebar.store.stages import stage_seconds

CURVES = {"loss": "nats per chunk", "accuracy": "share told rightly", "log_z": "nats", "calibration_error": "share"}


def write_residual_page(folder: Path, evaluation: Evaluation | None) -> Path:
    """`report.html` in the run folder."""
    sections = [] if evaluation is None else _evaluated(evaluation)
    sections.append(Section("Training", [curves(folder / "energy")]))
    seconds = {name: round(taken, 1) for name, taken in stage_seconds(folder).items()}
    sections += [
        Section("How long each stage took", [Table(("stage", "seconds"), list(seconds.items()))]),
        Section("What was asked", [Samples((folder / "config.yaml").read_text().splitlines())]),
        Section("Where it was run", [Table(("what", "value"), _environment(folder))]),
    ]
    path = folder / "report.html"
    write_page(path, f"Residual model {folder.name}", sections)
    return path


def curves(folder: Path) -> Part:
    """Curves of the energy's training; at the optimum log Z is 0."""
    path = folder / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    panels = []
    for key, unit in CURVES.items():
        lines = [_line(records, key, "training"), _line(records, f"validation.{key}", "held out")]
        if any(line.x for line in lines):
            levels = {"log_z": {"optimum": 0.0}, "accuracy": {"chance": 0.5}}.get(key)
            panels.append(
                Panel(title=key.replace("_", " "), x_label="step", y_label=unit, levels=levels,
                      lines=[line for line in lines if line.x])
            )  # fmt: skip
    if not panels:
        return Text("Nothing was logged.")
    return Figure(draw(panels), "Telling data from the base's draws, on training batches and on held-out chunks.")


def _line(records: list[dict[str, Any]], key: str, name: str) -> Line:
    points = [(float(record["step"]), float(record[key])) for record in records if key in record]
    return Line(name=name, x=[step for step, _ in points], y=[value for _, value in points])


def _evaluated(evaluation: Evaluation) -> list[Section]:
    perplexity = evaluation.perplexity
    prefixes = [
        [row, z.estimate, z.lower, z.upper, "–" if math.isnan(k) else f"{k:.2f}", z.estimate.effective_sample_size]
        for row, (z, k) in enumerate(zip(perplexity.log_z, perplexity.k, strict=True))
    ]
    moves = [[row.draws, row.low, row.value, row.high, row.log_z, row.log_z_upper] for row in perplexity.by_draws]
    return [
        Section("Warnings", [Warnings(evaluation.warnings)]),
        Section(
            "Figures",
            [
                Text(f"{len(perplexity.log_z):,} test prefixes, {perplexity.by_draws[-1].draws:,} draws for each."),
                Table(("figure", "value"), list(evaluation.figures().items())),
            ],
        ),
        Section(
            "How it moves with the number of draws",
            [Table(("draws", "low", "perplexity", "high", "mean log Z, lower", "upper"), moves)],
        ),
        Section("Energies", [_histogram(evaluation.energies)]),
        Section("Continuations", [part for one in evaluation.continued for part in _beside(one)]),
        Section(
            "log Z of each prefix",
            [Folded("all prefixes", [Table(("prefix", "log Z", "lower", "upper", "k̂", "ESS"), prefixes)])],
        ),
    ]


def _histogram(energies: EnergyDistributions) -> Part:
    middles = [(left + right) / 2 for left, right in zip(energies.edges[:-1], energies.edges[1:], strict=True)]
    lines = [
        Line(name=name, x=middles, y=list(getattr(energies, key).shares))
        for key, name in (("data", "data"), ("base", "draws of the base"), ("joint", "the joint model"))
    ]
    panel = Panel(title="energy", x_label="E", y_label="share", lines=lines)
    return Figure(draw([panel]), "A joint model that has learnt the data has the data's energies.")


def _beside(one: Continued) -> list[Part]:
    k = "–" if math.isnan(one.k) else f"{one.k:.2f}"
    return [
        Samples([f"… {one.prefix[-300:]}"]),
        Table(
            ("", "continuation"),
            [
                ["data", one.data],
                ["base", one.base],
                [f"joint (ESS {one.effective_sample_size:.1f}, k̂ {k})", one.joint],
            ],
        ),
    ]


def _environment(folder: Path) -> list[tuple[str, object]]:
    return flat(json.loads((folder / "environment.json").read_text()))
