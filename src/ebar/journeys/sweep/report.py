"""The page of a sweep: which trials there were, how options and figure go together, the best run's command."""

from pathlib import Path

from ebar.journeys.sweep.search import OneOf, Search
from ebar.journeys.sweep.trials import Swept, trial_folder
from ebar.report.page import PageFigure, PageTable, Part, Samples, Section, Text, Warnings, write_page
from ebar.report.parallel_coordinates import Coordinate, plot_parallel_coordinates

FIGURE = "validation loss"


def write_sweep_page(found: Swept, search: Search, command: str) -> Path:
    """`report.html` in the folder of the sweep."""
    failed = [f"trial {one.number}: {one.problem}" for one in found.trials if one.state == "failed"]
    names = list(search.over)
    rows = [
        [one.number, *(one.values[name] for name in names), one.state or "under way",
         "–" if one.figure is None else f"{one.figure:.6f}", "–" if one.step is None else one.step,
         trial_folder(found.folder, one.number).name]
        for one in sorted(
            found.trials, key=lambda one: (one.figure is None or one.state == "failed", one.figure or 0.0, one.number)
        )
    ]  # fmt: skip
    best = Text("No trial has a figure.") if found.best is None else Samples([command])
    sections = [
        Section("Best", [best, Text(_about(found))]),
        Section("Options and figure", [_picture(found, search)]),
        Section("Failures", [Warnings(failed)]),
        Section("Trials", [PageTable(("trial", *names, "state", FIGURE, "at step", "run"), rows)]),
    ]
    path = found.folder / "report.html"
    write_page(path, f"Sweep {found.folder.name}", sections)
    return path


def _about(found: Swept) -> str:
    counts = {state: sum(one.state == state for one in found.trials) for state in ("complete", "pruned", "failed")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return (
        f"{len(found.trials)} trials: {told}. The figure is the lowest {FIGURE} of each run. It served to choose among "
        "them, and flatters the best: `ebar evaluate` measures it on the test data, with an interval."
    )


def _picture(found: Swept, search: Search) -> Part:
    shown = [one for one in found.trials if one.state in ("complete", "pruned") and one.figure is not None]
    if not shown:
        return Text("Nothing to show yet.")
    axes = []
    for name, dimension in search.over.items():
        values = [one.values[name] for one in shown]
        if isinstance(dimension, OneOf):
            axes.append(Coordinate(name=name, values=values, order=dimension.examples))
        else:
            axes.append(Coordinate(name=name, values=values, log=dimension.log))
    axes.append(Coordinate(name=FIGURE, values=[one.figure for one in shown if one.figure is not None]))
    caption = "A line for each trial with a figure, pruned ones at their best so far; the widest line is the lowest."
    return PageFigure(plot_parallel_coordinates(axes), caption)
