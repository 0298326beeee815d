"""Parallel coordinates: an axis for each option and one for the figure, a line for each trial, the best on top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.report.plots import pyplot, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """One axis. `values` has an entry for each line; words stand evenly spaced, in their order."""

    name: str
    values: Sequence[float | str | bool]
    log: bool = False
    order: Sequence[float | str | bool] = ()  # of words: all there could be

    def places(self) -> tuple[list[float], list[tuple[float, str]]]:
        """Where each line crosses the axis, from 0 to 1; and marks along it."""
        if self.order:
            steps = max(1, len(self.order) - 1)
            marks = [(place / steps, str(word)) for place, word in enumerate(self.order)]
            return [list(self.order).index(value) / steps for value in self.values], marks
        numbers = [float(value) for value in self.values]
        scaled = [math.log(number) for number in numbers] if self.log else numbers
        low, high = min(scaled), max(scaled)
        if high <= low:
            return [0.5] * len(scaled), [(0.5, f"{numbers[0]:.4g}")]
        marks = []
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            mark = low + share * (high - low)
            marks.append((share, f"{math.exp(mark) if self.log else mark:.3g}"))
        return [(one - low) / (high - low) for one in scaled], marks


def plot_parallel_coordinates(axes: Sequence[Coordinate], path: Path | None = None) -> str:
    """As SVG text; lines are coloured by the last axis, the lowest of it drawn last and widest."""
    plots = pyplot()
    figure, ax = plots.subplots(figsize=(1.6 * len(axes) + 2, 3.8), layout="constrained")
    placed = [axis.places() for axis in axes]
    last = placed[-1][0]
    order = sorted(range(len(last)), key=lambda line: -last[line])
    for rank, line in enumerate(order):
        best = rank == len(order) - 1
        ax.plot(
            range(len(axes)), [places[line] for places, _ in placed], color=plots.cm.viridis(last[line]),
            linewidth=2.5 if best else 1, alpha=1.0 if best else 0.6,
        )  # fmt: skip
    for place, (_, marks) in enumerate(placed):
        ax.axvline(place, color="0.3", linewidth=0.8)
        for height, words in marks:
            ax.annotate(
                words.replace("$", r"\$"), (place, height), xytext=(3, 0), textcoords="offset points", fontsize=7
            )
    ax.set_xticks(range(len(axes)), [axis.name.replace("$", r"\$") for axis in axes], fontsize=8)
    ax.set_yticks([])
    ax.set_xlim(-0.2, len(axes) - 0.5)
    for side in ax.spines.values():
        side.set_visible(False)
    return written(plots, figure, path)
