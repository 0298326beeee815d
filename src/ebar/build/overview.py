"""A page on a run, from what its folder holds: what it is, curves, figures, what can be done next."""

import json
from pathlib import Path
from typing import Any

from ebar.build.next_commands import next_commands
from ebar.build.summaries import RESULTS, RunSummary
from ebar.report.page import PageTable, Part, Samples, Section, Text, write_page
from ebar.report.run_page import about_run, curve, flattened_tree
from ebar.store.writing import saving

PAGE = "overview.html"
METRICS = "metrics.jsonl"


def write_overview(run: RunSummary) -> Path:
    """`overview.html` in the folder of a run; `report.html`, which evaluation writes, is left alone."""
    known = {"kind": run.kind, "data": run.data, "model": run.model, "step": run.step, "best": run.figure}
    about = [(name, value) for name, value in {**known, "state": run.state}.items() if value not in ("", None)]
    sections = [Section("What it is", [PageTable(("", ""), about)]), Section("Curves", _curves(run.folder))]
    if figures := _figures(run.folder):
        sections.append(Section("Figures", [PageTable(("figure", "value"), figures)]))
    if after := next_commands(run):
        sections.append(Section("What to do next", [PageTable(("", "command"), list(after.items()))]))
    path = run.folder / PAGE
    with saving(str(path)):
        write_page(path, f"Run {run.folder.name}", [*sections, *_asked(run.folder)])
    return path


def _curves(folder: Path) -> list[Part]:
    """Of each training in the folder: its own, or those of its parts."""
    found: list[Part] = []
    for path in sorted(folder.rglob(METRICS), key=lambda path: (len(path.parts), path)):
        records = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # the last line of a process that was killed
                break
        name = path.parent.relative_to(folder).as_posix()
        found.append(curve(records, "Loss" if name == "." else f"Loss of {name}"))
    return found or [Text("Nothing was trained yet.")]


def _figures(folder: Path) -> list[tuple[str, object]]:
    """What results.json has of numbers, lists left out."""
    try:
        tree: Any = json.loads((folder / RESULTS).read_bytes())
    except (OSError, ValueError):
        return []
    rows = flattened_tree(tree if isinstance(tree, dict) else {})
    return [(name, value) for name, value in rows if isinstance(value, int | float | str) and len(str(value)) <= 200]


def _asked(folder: Path) -> list[Section]:
    """Where a part of a run has no environment of its own, its configuration alone."""
    try:
        return about_run(folder)
    except (OSError, ValueError):
        return [Section("What was asked", [Samples((folder / "config.yaml").read_text("utf-8").splitlines())])]
