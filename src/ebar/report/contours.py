"""Energies of the plane as filled contours, and points, side by side: small SVG files that are always the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebar.report.plots import pyplot, written

LEVELS = 12  # nats above the lowest energy that contours tell apart; what lies higher has one colour
COLOURS = ("C0", "C3")  # of the first and second kind of points: generated and real, as in the figures of the thesis
DPI = 100  # of what is drawn as pixels: contours and points as paths would make files of megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One square: energies on a grid, or points, or both."""

    title: str
    low: tuple[float, float]  # the corners of the rectangle
    high: tuple[float, float]
    energies: Sequence[Sequence[float]] | None = None  # row by row from below
    points: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)  # name → places


def plot_fields(rows: Sequence[Sequence[Field]], path: Path | None = None) -> str:
    """Rows of squares as SVG text; written to `path` if one is given.

    Contours are of E − min E, one for every nat up to 12: energies that differ by a constant look alike.
    """
    return plot_squares(rows, _draw, path, title_size=8)


def plot_squares(
    rows: Sequence[Sequence[Any]], draw: Callable[[Any, Any], None], path: Path | None, *, title_size: int
) -> str:
    """Rows of small axes, each drawn by a function of what it shows (a `title`, `low`, `high`) and of the axes."""
    plots = pyplot()
    wide = max(map(len, rows))
    figure, axes = plots.subplots(
        len(rows), wide, figsize=(2.1 * wide, 2.2 * len(rows)), squeeze=False, layout="constrained"
    )
    for line, squares in zip(rows, axes, strict=True):
        for ax in squares[len(line) :]:
            ax.set_axis_off()
        for one, ax in zip(line, squares, strict=False):
            draw(one, ax)
            ax.set_xlim(one.low[0], one.high[0])
            ax.set_ylim(one.low[1], one.high[1])
            ax.set_title(one.title, fontsize=title_size)
            ax.tick_params(labelsize=5)
    return written(plots, figure, path, dpi=DPI)


def _draw(one: Field, ax: Any) -> None:
    if one.energies is not None:
        across, up, energies = energies_of(one)
        above = np.clip(energies - energies.min(), 0, LEVELS)
        drawn = ax.contourf(across, up, above, levels=np.arange(LEVELS + 1), cmap="viridis_r")
        drawn.set_rasterized(True)
    for (name, places), colour in zip(one.points.items(), COLOURS, strict=False):
        ax.plot(*np.asarray(places, dtype=float).T, ".", color=colour, markersize=1.5, label=name, rasterized=True)
    if len(one.points) > 1:
        ax.legend(fontsize=5, loc="upper right", markerscale=3)


def energies_of(one: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The coordinates of a square's columns and rows, and its energies."""
    energies = np.asarray(one.energies, dtype=float)
    across, up = (np.linspace(one.low[at], one.high[at], energies.shape[1 - at]) for at in (0, 1))
    return across, up, energies
