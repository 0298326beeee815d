"""Pictures as SVG: they take their colours from the page, light or dark, and load nothing."""

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

from ebar.automata.deterministic import Dfa
from ebar.types import Estimate

STEP, RADIUS = 76, 17


def automaton_svg(automaton: Dfa, alphabet: str, *, at: int) -> str:
    """States in a row, in breadth-first order; a double circle accepts, the filled one is where a prefix leads."""
    table, accepting = automaton.table.tolist(), automaton.accepting.tolist()
    arrows: dict[tuple[int, int], list[str]] = {}
    for source, row in enumerate(table):
        for symbol, target in zip(alphabet, row, strict=True):
            arrows.setdefault((source, target), []).append(symbol)
    forward = max((target - source for source, target in arrows), default=1)
    back = max((source - target for source, target in arrows), default=0)
    middle = RADIUS + 50 if forward < 2 else _bend(forward) - 4
    width, height = STEP * len(table) + 40, middle + (RADIUS + 14 if back < 1 else _bend(back) - 8)
    drawn = [_arrow(source, target, _label(symbols, alphabet), middle) for (source, target), symbols in arrows.items()]
    for state, accepts in enumerate(accepting):
        x = _x(state)
        kind = "at" if state == at else "state"
        drawn.append(f'<circle class="{kind}" cx="{x}" cy="{middle}" r="{RADIUS}"/>')
        if accepts:
            drawn.append(f'<circle class="ring" cx="{x}" cy="{middle}" r="{RADIUS + 4}"/>')
        drawn.append(f'<text class="{kind}" x="{x}" y="{middle + 5}">{state}</text>')
    arrowhead = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    start = _x(automaton.start) - RADIUS
    begin = f'<path class="arrow" d="M{start - 22} {middle} H{start - 3}" marker-end="url(#head)"/>'
    return (
        f'<div class="wide"><svg class="automaton" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="automaton with {len(table)} states">{arrowhead}{begin}{"".join(drawn)}</svg></div>'
    )


def _x(state: int) -> int:
    return 46 + STEP * state


def _bend(states: int) -> int:
    """How far an arrow over so many states reaches aside."""
    return 44 + 13 * states


def _label(symbols: list[str], alphabet: str) -> str:
    return "any" if len(symbols) == len(alphabet) > 2 else ",".join(symbols)


def _arrow(source: int, target: int, label: str, middle: int) -> str:
    """Straight to the next state, above to later ones, below to earlier ones, a loop above for the state itself."""
    x, y, text = _x(source), middle, 'class="symbol" text-anchor="middle"'
    label = escape(label)
    if source == target:
        top = y - RADIUS
        path = f"M{x - 8} {top} C{x - 26} {top - 38} {x + 26} {top - 38} {x + 8} {top - 3}"
        named = f'<text {text} x="{x}" y="{top - 34}">{label}</text>'
        return f'<path class="arrow" d="{path}" marker-end="url(#head)"/>{named}'
    end = _x(target)
    if target == source + 1:
        path = f"M{x + RADIUS} {y} H{end - RADIUS - 6}"
        middle_x, middle_y = (x + end) / 2, y - 7.0
    else:
        side = -1 if target > source else 1
        bend = y + side * _bend(abs(target - source))
        path = f"M{x} {y + side * RADIUS} C{x} {bend} {end} {bend} {end} {y + side * (RADIUS + 6)}"
        middle_x, middle_y = (
            (x + end) / 2,
            y + side * (RADIUS + 0.75 * (abs(bend - y) - RADIUS)) + (4 if side > 0 else -2),
        )
    return (
        f'<path class="arrow" d="{path}" marker-end="url(#head)"/>'
        f'<text {text} x="{middle_x:.0f}" y="{middle_y:.0f}">{label}</text>'
    )


def states_svg(reached: Float[np.ndarray, "places states"]) -> str:
    """How likely each state is after so many symbols: a column for each place, a row for each state."""
    places, states = reached.shape
    cell, left, top = max(10, min(26, 760 // places)), 34, 8
    width, height = left + cell * places + 8, top + 18 * states + 34
    drawn = []
    for state in range(states):
        y = top + 18 * state
        drawn.append(f'<text class="axis" x="{left - 6}" y="{y + 13}" text-anchor="end">{state}</text>')
        for place in range(places):
            value = float(reached[place, state])
            drawn.append(
                f'<rect class="cell" x="{left + cell * place}" y="{y}" width="{cell - 1}" height="17" '
                f'fill-opacity="{value**0.7:.3f}"><title>state {state} after {place}: {value:.6f}</title></rect>'
            )
    step = max(1, -(-places // 12))
    for place in range(0, places, step):
        x = left + cell * place + cell / 2
        drawn.append(f'<text class="axis" x="{x:.0f}" y="{height - 18}" text-anchor="middle">{place}</text>')
    centre = left + cell * places / 2
    drawn.append(f'<text class="axis" x="{centre:.0f}" y="{height - 3}" text-anchor="middle">symbols read</text>')
    return (
        f'<div class="wide"><svg class="chart" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="probability of each state after each number of symbols">{"".join(drawn)}</svg></div>'
    )


def curve_svg(
    places: Sequence[float], curve: Sequence[Estimate], *, at: float, here: Estimate, wanted: float | None, label: str
) -> str:
    """A moment over λ with its band, the chosen λ marked."""
    width, height, left, right, top, bottom = 560, 220, 52, 12, 12, 40
    low, high = min(one.low for one in curve), max(one.high for one in curve)
    if not np.isfinite([low, high]).all():
        low, high = min(one.value for one in curve), max(one.value for one in curve)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5

    def x(value: float) -> float:
        return left + (width - left - right) * (value - places[0]) / (places[-1] - places[0])

    def y(value: float) -> float:
        return top + (height - top - bottom) * (high - min(max(value, low), high)) / (high - low)

    upper = [f"{x(place):.1f},{y(one.high):.1f}" for place, one in zip(places, curve, strict=True)]
    lower = [f"{x(place):.1f},{y(one.low):.1f}" for place, one in zip(places, curve, strict=True)]
    middle = " ".join(f"{x(place):.1f},{y(one.value):.1f}" for place, one in zip(places, curve, strict=True))
    drawn = [f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>']
    drawn.append(f'<polyline class="line" points="{middle}"/>')
    for value in (low, (low + high) / 2, high):
        drawn.append(f'<text class="axis" x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for value in (places[0], (places[0] + places[-1]) / 2, places[-1]):
        anchor = "start" if value == places[0] else "end" if value == places[-1] else "middle"
        drawn.append(
            f'<text class="axis" x="{x(value):.1f}" y="{height - 22}" text-anchor="{anchor}">{value:.2f}</text>'
        )
    axis, centre = f"λ; up: {escape(label)}", (left + width) / 2
    drawn.append(f'<text class="axis" x="{centre}" y="{height - 5}" text-anchor="middle">{axis}</text>')
    if wanted is not None:
        drawn.append(f'<path class="wanted" d="M{left} {y(wanted):.1f} H{width - right}"/>')
    drawn.append(f'<path class="error" d="M{x(at):.1f} {y(here.low):.1f} V{y(here.high):.1f}"/>')
    drawn.append(f'<circle class="at" cx="{x(at):.1f}" cy="{y(here.value):.1f}" r="5"/>')
    return (
        f'<svg class="chart fluid" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="the moment over lambda">{"".join(drawn)}</svg>'
    )
