"""Lines with their intervals, as SVG: small, sharp, and self-contained."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.errors import UserError
from ebar.types import Estimate

MARKED = 60  # points, above which a line has no markers


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve; `low` and `high` are drawn as a band where they are given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A set of axes with its lines; `levels` are horizontal reference lines by name."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    levels: Mapping[str, float] | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Estimates one below the other, each with its interval; an end at infinity runs to the edge, dashed."""

    title: str
    x_label: str
    rows: Mapping[str, Estimate]


def draw(panels: Sequence[Panel | Dots], path: Path | None = None) -> str:
    """All panels side by side, as SVG text; written to `path` if one is given."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False, layout="constrained"
    )
    for panel, ax in zip(panels, axes[0], strict=True):
        if isinstance(panel, Dots):
            _draw_dots(panel, ax)
        else:
            _draw_panel(panel, ax)
    text = io.StringIO()
    # No date and fixed identifiers: the same figures give the same file.
    with pyplot.rc_context({"svg.hashsalt": "ebar"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    svg = text.getvalue()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg)
    return svg


def _draw_panel(panel: Panel, ax: Any) -> None:
    for line in panel.lines:
        style = {"marker": "o", "markersize": 3} if len(line.x) <= MARKED else {"linewidth": 1}
        (drawn,) = ax.plot(line.x, line.y, "--" if line.dashed else "-", label=line.name, **style)
        if line.low is not None and line.high is not None:
            ax.fill_between(line.x, line.low, line.high, color=drawn.get_color(), alpha=0.15, linewidth=0)
    for name, level in (panel.levels or {}).items():
        ax.axhline(level, color="0.4", linestyle=":", label=name)
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    ax.grid(alpha=0.25)
    if panel.lines:
        ax.legend(fontsize=7)


def _draw_dots(panel: Dots, ax: Any) -> None:
    ends = [end for row in panel.rows.values() for end in (row.value, row.low, row.high) if math.isfinite(end)]
    left, right = min([0.0, *ends]), max([0.0, *ends])
    margin = 0.08 * (right - left) or 1.0
    left, right = left - margin, right + margin
    for place, row in enumerate(panel.rows.values()):
        low, high = max(row.low, left), min(row.high, right)
        bounded = math.isfinite(row.low) and math.isfinite(row.high)
        ax.plot([low, high], [place, place], "-" if bounded else ":", color="C0", linewidth=1.5)
        ax.plot([min(max(row.value, left), right)], [place], "o", color="C0", markersize=5)
    ax.axvline(0.0, color="0.6", linewidth=0.8)
    ax.set_xlim(left, right)
    ax.set_ylim(len(panel.rows) - 0.4, -0.6)
    ax.set_yticks(range(len(panel.rows)), [_short(name) for name in panel.rows], fontsize=8)
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlabel(panel.x_label)
    ax.grid(alpha=0.25, axis="x")


def _short(name: str, most: int = 30) -> str:
    # A dollar sign would begin a formula.
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError("Plots need matplotlib: pip install 'ebar[report]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
