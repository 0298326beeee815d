"""Lines with their intervals, as SVG: small, sharp, and self-contained.

Where in a text its features are: spans to mark.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError
from ebar.features.counts import NgramCount
from ebar.features.feature import Feature
from ebar.features.functions import Predicate
from ebar.features.regular import Expression, Motif, StartsWith
from ebar.report.page import Span
from ebar.types import Estimate, Sequences

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


def plot_panels(panels: Sequence[Panel | Dots], path: Path | None = None) -> str:
    """All panels side by side, as SVG text; written to `path` if one is given."""
    plots = pyplot()
    figure, axes = plots.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False, layout="constrained")
    for panel, ax in zip(panels, axes[0], strict=True):
        if isinstance(panel, Dots):
            _draw_dots(panel, ax)
        else:
            _draw_panel(panel, ax)
    return written(plots, figure, path)


def written(plots: Any, figure: Any, path: Path | None, **how: Any) -> str:
    """A figure of matplotlib as SVG text, also in a file if one is given; the figure is closed."""
    text = io.StringIO()
    # No date and fixed identifiers: the same figures give the same file.
    with plots.rc_context({"svg.hashsalt": "ebar"}):
        figure.savefig(text, format="svg", metadata={"Date": None}, **how)
    plots.close(figure)
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


def pyplot() -> Any:
    """matplotlib's pyplot, drawing into files only."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("Plots need matplotlib: pip install 'ebar[report]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plots

    return plots


def title_of(feature: Feature) -> str:
    """What is marked: the thing itself, whether its presence or its absence is the feature."""
    return f"starts with {feature.prefix}" if isinstance(feature, StartsWith) else feature.name.removeprefix("no ")


def spans_in(line: str, features: Sequence[Feature], alphabet: Alphabet) -> list[Span]:
    """Non-overlapping spans, each with its feature's number; of two at a place the shorter is marked."""
    found = [(number, span) for number, feature in enumerate(features) for span in occurrences(line, feature, alphabet)]
    owners = [-1] * len(line)
    for number, (start, stop) in sorted(found, key=lambda one: (one[1][0] - one[1][1], -one[0])):
        owners[start:stop] = [number] * (stop - start)
    runs = [(owner, list(places)) for owner, places in groupby(range(len(line)), key=owners.__getitem__)]
    return [(places[0], places[-1] + 1, owner) for owner, places in runs if owner >= 0]


def occurrences(line: str, feature: Feature, alphabet: Alphabet) -> list[tuple[int, int]]:
    """Every place of a motif, a prefix, an n-gram or an expression; the whole line where a function of it holds."""
    if isinstance(feature, Motif):
        return _places(line, feature.motif)
    if isinstance(feature, NgramCount):
        return _places(line, feature.ngram)
    if isinstance(feature, StartsWith):
        return [(0, len(feature.prefix))] if line.startswith(feature.prefix) else []
    if isinstance(feature, Expression):
        dfa = compile_expression(feature.expression, alphabet.symbols, anywhere=False)
        return _matches(alphabet.encode(line), dfa, whole=feature.whole)
    if isinstance(feature, Predicate):
        tokens = torch.tensor([alphabet.encode(line)], dtype=torch.long).reshape(1, len(line))
        holds = feature(Sequences(tokens, torch.tensor([len(line)])))
        return [(0, len(line))] if line and float(holds[0]) else []
    return []


def _places(line: str, part: str) -> list[tuple[int, int]]:
    return [(at, at + len(part)) for at in range(len(line)) if line.startswith(part, at)]


def _matches(tokens: list[int], dfa: Dfa, *, whole: bool) -> list[tuple[int, int]]:
    """From left to right the longest matches that do not overlap."""
    table, accepting = dfa.table.tolist(), dfa.accepting.tolist()
    found, start = [], 0
    while start < len(tokens):
        state, stop = dfa.start, start
        for place in range(start, len(tokens)):
            state = table[state][tokens[place]]
            if accepting[state]:
                stop = place + 1
        if stop > start and (not whole or stop == len(tokens)):
            found.append((start, stop))
        if whole:
            break
        start = max(stop, start + 1)
    return found
