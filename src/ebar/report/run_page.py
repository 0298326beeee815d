"""The report of a run, from what its folder holds."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.report.page import PageFigure, PageTable, Part, Samples, Section, Text, Warnings, write_page
from ebar.report.plots import Line, Panel, plot_panels
from ebar.types import Estimate


def write_run_page(folder: Path, *, figures: Mapping[str, object], samples: Samples | None = None) -> Path:
    """`report.html` in the run folder: what was asked, curves, figures with intervals, samples, warnings."""
    warnings = [
        f"{name}: {value.warning}" for name, value in figures.items() if isinstance(value, Estimate) and value.warning
    ]
    sections = [
        Section("Warnings", [Warnings(warnings)]),
        Section("Figures", [PageTable(("figure", "value"), list(figures.items()))]),
        Section("Curves", [curve(_log(folder), "Loss")]),
    ]
    if samples is not None:
        sections.append(Section("Samples", [samples]))
    path = folder / "report.html"
    write_page(path, f"Run {folder.name}", [*sections, *about_run(folder)])
    return path


def about_run(folder: Path) -> list[Section]:
    """What was asked, and where it was run."""
    environment = json.loads((folder / "environment.json").read_text())
    return [
        Section("What was asked", [Samples((folder / "config.yaml").read_text().splitlines())]),
        Section("Where it was run", [PageTable(("what", "value"), flattened_tree(environment))]),
    ]


def _log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def curve(records: Sequence[Mapping[str, Any]], title: str, levels: Mapping[str, float] | None = None) -> Part:
    """The losses of a run, in training and held out, from the lines of its metrics.jsonl."""
    lines = []
    for key, name in (("loss", "training"), ("validation.loss", "validation")):
        points = [(float(record["step"]), float(record[key])) for record in records if key in record]
        if points:
            lines.append(Line(name=name, x=[step for step, _ in points], y=[value for _, value in points]))
    if not lines:
        return Text("Nothing was logged.")
    panel = Panel(title=title, x_label="step", y_label="nats per token", lines=lines, levels=levels)
    return PageFigure(plot_panels([panel]), "Loss on training batches, and on held-out data.")


def flattened_tree(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """A tree as rows of a table."""
    rows: list[tuple[str, object]] = []
    for key, value in tree.items():
        rows += flattened_tree(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows
