"""The regions of a classifier of the plane, its true-fake boundary, and points, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ebar.report.contours import energies_of, plot_squares

COLOURS = ("C2", "C1", "C4", "C5", "C6", "C8")  # of classes, in their order and then again
GENERATED, UNLABELLED = "C0", "0.55"
Places = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """One square: what a classifier makes of each node of a grid, or points, or both.

    With `classes` the regions have their colours and the line where energies are 0, between true and fake, is white;
    with energies alone, what is taken for true is bright and the line black.
    """

    title: str
    low: tuple[float, float]  # the corners of the rectangle
    high: tuple[float, float]
    classes: Sequence[Sequence[int]] | None = None  # row by row from below
    energies: Sequence[Sequence[float]] | None = None
    unlabelled: Places = ()
    generated: Places = ()
    labelled: Mapping[int, Places] = field(default_factory=dict)  # a class → its crosses
    members: Mapping[int, Places] = field(default_factory=dict)  # a class → points in its colour


def plot_planes(rows: Sequence[Sequence[Plane]], path: Path | None = None) -> str:
    """Rows of squares as SVG text; written to `path` if one is given. As in Dai 2019 (thesis), Figures C.1 to C.4."""
    return plot_squares(rows, _draw, path, title_size=7)


def _draw(one: Plane, ax: Any) -> None:
    extent = (one.low[0], one.high[0], one.low[1], one.high[1])
    # Nearest, not between: half-way between classes 0 and 2 lies no class 1.
    nearest: dict[str, Any] = {"origin": "lower", "extent": extent, "interpolation": "nearest", "aspect": "auto"}
    if one.classes is not None:
        from matplotlib.colors import ListedColormap

        classes = np.asarray(one.classes)
        colours = [COLOURS[number % len(COLOURS)] for number in range(int(classes.max()) + 1)]
        ax.imshow(classes, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5, alpha=0.45, **nearest)
    if one.energies is not None:
        across, up, energies = energies_of(one)
        if one.classes is None:
            ax.imshow(energies < 0, cmap="gray", vmin=-0.6, vmax=1.0, alpha=0.5, **nearest)
        if energies.min() < 0 < energies.max():
            ax.contour(across, up, energies, levels=[0.0], linewidths=0.9, colors="w" if one.classes else "k")
    _dots(ax, one.unlabelled, UNLABELLED)
    for number, places in one.members.items():
        _dots(ax, places, COLOURS[number % len(COLOURS)])
    _dots(ax, one.generated, GENERATED)
    for number, places in one.labelled.items():
        colour = COLOURS[number % len(COLOURS)]
        ax.plot(*np.asarray(places, dtype=float).T, "x", color=colour, markersize=4, markeredgewidth=1.4)


def _dots(ax: Any, places: Places, colour: str) -> None:
    if len(places):
        ax.plot(*np.asarray(places, dtype=float).T, ".", color=colour, markersize=1.5, rasterized=True)
