"""What can be certified of bounded energies, and what a bound costs that is not the network's own.

The last layer norm of a pretrained encoder bounds its energy already; UniT and BiT end in a tanh. Of BiT-Base* there is
one with a tanh and one without, which differ in nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result, Row, layouts
from ebar.recipes.residual import reading
from ebar.recipes.residual.perplexity import joint_perplexity
from ebar.recipes.residual.reading import BASES, BY_TASK, MODEL, NAMES, RUNS, TASK, by_task, cell_of, energy_results
from ebar.recipes.rows import chosen
from ebar.types import Estimate

PERPLEXITY, CERTIFIED = "perplexity per token", "perplexity per token, certified for these prefixes"
HERE = "nats per token, joint − base LM, on these prefixes, certified"
ELSEWHERE = "nats per token, joint − base LM, on others like them, certified"
WIDTH = "width of the certified interval, in widths of the normal one"
BOUND, LIGHT = "bound on |E|", "share of the prefixes with an effective sample size of 30"
PAIRED = "nats per token, bounded − as it is"


def _bounded(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every seed of every energy that is bounded."""
    return [run for run in energy_results(cell, result) if run[1]["evaluation"]["perplexity"]["certified"] is not None]


def _interval(run: Mapping[str, Any], what: str) -> Estimate | None:
    """A figure with its certified ends."""
    found = run["evaluation"]["perplexity"]
    ends = found["certified"]["cost" if what == CERTIFIED else "elsewhere" if what == ELSEWHERE else "difference"]
    if ends is None:
        return None
    low, high = map(float, ends)
    value = float(found["value"])
    if what == CERTIFIED:
        return Estimate(value, math.exp(low), math.exp(high), math.nan)
    return Estimate(math.log(value / float(found["base"])), low, high, math.nan)


def _width(run: Mapping[str, Any]) -> float:
    found = run["evaluation"]["perplexity"]
    low, high = map(float, found["certified"]["cost"])
    normal = math.log(float(found["high"]) / float(found["low"]))
    return (high - low) / normal if normal else math.inf


def _price(results: Sequence[Result]) -> list[Row]:
    """One seed of each, on the same prefixes and draws."""
    rows = []
    for cell, result in by_task(results):
        pair = [result["energies"].get(kind) for kind in ("pretrained_bounded", "pretrained_base")]
        if None not in pair:
            gains = [reading.less(*(runs[0]["gains"] for runs in pair))]
            about = {"base": BASES[cell["base"]], "corpus": cell["corpus"]}
            tokens = result["rivals"]["base"]["tokens"]
            rows.append(reading.over_both(PAIRED, about, gains, tokens, one="one seed of each"))
    return rows


def _notes(rows: Sequence[Row]) -> list[str]:
    """Whether the bound costs anything, and what the intervals are over."""
    said = []
    for row in chosen(rows, PAIRED, {}):
        value, low, high = (float(number or 0.0) for number in (row.value, row.low, row.high))
        side = "lowers" if high < 0 else "raises" if low > 0 else "is not shown to change"
        said.append(
            f"{row.settings['corpus']}: a tanh on {NAMES['pretrained_base']} {side} its cost ({value:+.4f} nats per "
            f"token, {low:+.4f} to {high:+.4f})."
        )
    return [
        *said,
        "A certified interval holds with a chance of 95 % or more whatever the law of the weights: given these "
        "prefixes, only log Z is random, and the weights are bounded. Others are by normal approximation. What another "
        "seed would give is in none of them.",
    ]


def _over(row: Row, cells: Sequence[Cell]) -> str:
    cell = cell_of(row, cells)
    if row.name == ELSEWHERE:
        return f"{cell['prefixes']} prefixes and {cell['draws']} draws for each, one energy seed"
    return f"{cell['draws']} draws for log Z, on these {cell['prefixes']} prefixes"


RECIPE = Recipe(
    title="Bounded energies, and what can be certified of them",
    source="ebar's own; base, data and energies of residual/perplexity. Deng et al. 2020, “There is no guarantee that "
    "100k is enough”",
    figures=[
        Figures(
            Figure(name=PERPLEXITY, at=joint_perplexity),
            *(Figure(name=name, at=lambda run, what=name: _interval(run, what)) for name in
              (CERTIFIED, HERE, ELSEWHERE)),
            Figure(name=WIDTH, at=_width, bare=True),
            Figure(name=BOUND, at="evaluation.perplexity.certified.bound", bare=True),
            Figure(name=LIGHT, at="evaluation.perplexity.share_light", bare=True),
            by=(*MODEL, "energy seed"), parts=_bounded,
        ),
        _price,
    ],
    tables=[
        *layouts((*MODEL, "energy seed"), [PERPLEXITY, CERTIFIED, HERE, ELSEWHERE], [WIDTH, BOUND, LIGHT]),
        Layout(rows=TASK, figures=[PAIRED]),
    ],
    plots=Points(
        of=[HERE], label="{model}, seed {energy seed}", x_label="nats per token, joint − base, certified", **BY_TASK
    ),
    claims=[
        Claim(says="the joint model's perplexity is below the base's for certain, on these prefixes", figure=HERE,
              below=0.0),
        Claim(says="the same on others like them", figure=ELSEWHERE, below=0.0),
    ],
    notes=_notes,
    reading=Caption(items=_over),
    **RUNS,
)  # fmt: skip
