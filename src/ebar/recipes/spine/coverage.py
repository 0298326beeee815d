"""How often the intervals of the plainest call hold the truth, for every sampler, on targets that can be enumerated.

The call is `log_z(draw(sampler, target, n))`, and `moments` and `divergence` of the same draws: nothing tells the
estimators how the draws were made.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

import ebar
from ebar.estimators import exact
from ebar.estimators.exact import Model
from ebar.evaluation.means import plain_share
from ebar.recipes.figures import grouped, row_of
from ebar.recipes.pieces import Cell, Layout, Points, Recipe, Result, Row
from ebar.samplers import SAMPLERS
from ebar.types import Context, Distribution, Estimate, Sequences, Space

DRAWS = 1000
LEVEL, LEAST, MOST = 0.95, 0.925, 0.975
CONDITIONS = 4
MOTIFS = {"random 1": "101", "random 2": "0110", "random 3": "110", "random 4": "1011", "random 5": "1001"}
DIVERGENCES = ("kl", "total_variation")
# Repetitions of each case, in cells of so many.
SIZES = {"demo": (4, 2), "cpu": (4000, 500), "paper": (40_000, 1000)}


class Case(NamedTuple):
    """A target, what it is compared with, and where."""

    target: Model
    base: Distribution
    features: ebar.Features
    context: Context | None


def case(sampler: str, name: str) -> Case:
    """Two general targets, and for look-ahead random ones of which a surrogate must learn every prefix by itself."""
    if name in MOTIFS:
        space = Space(3, 9, end=2)
        base = ebar.Tabular.random(space, generator=Generator().manual_seed(list(MOTIFS).index(name)))
        features = ebar.Features([ebar.Motif(motif=MOTIFS[name], alphabet="01", end=2)])
        tilt = ebar.Linear(features, torch.tensor([2.75], dtype=torch.float64))
        return Case(ebar.Tilted(base, tilt), base, features, None)
    space, conditions = Space(3, 5, end=2), CONDITIONS if name == "conditional" else 1
    generator = Generator().manual_seed(20190915)
    base, other = (ebar.Tabular.random(space, conditions=conditions, generator=generator) for _ in range(2))
    features = ebar.Features([ebar.Motif(motif="11", alphabet="01", end=2), ebar.Length(longest=space.length, end=2)])
    rows = torch.arange(conditions)[:, None]
    context = None if conditions == 1 else Context(Sequences(rows, torch.ones(conditions, dtype=torch.long)))
    if sampler == "ancestral":  # its target must be a distribution
        return Case(other, base, features, context)
    tilt = ebar.Linear(features, torch.tensor([2.0, -0.2], dtype=torch.float64))
    return Case(ebar.Tilted(base, tilt), base, features, context)


def cells(scale: str) -> list[Cell]:
    """Repetitions of each case, so many in a run."""
    repetitions, at_once = SIZES[scale]
    cases = [(name, kind) for name in SAMPLERS for kind in ("unconditional", "conditional")]
    cases += [("look_ahead", name) for name in MOTIFS]
    return [
        {"sampler": sampler, "target": name, "repetitions": at_once, "seed": seed}
        for sampler, name in cases
        # A chain for an unconditional target is ten times as dear as the other samplers: a quarter as often.
        for seed in range(repetitions // (4 if (sampler, name) == ("metropolis", "unconditional") else 1) // at_once)
    ]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Of every figure: how often its interval held the truth, how often it warned, and its mean width."""
    one = case(cell["sampler"], cell["target"])
    truths = {name: value.detach() for name, value in _truths(one).items()}
    generator = Generator().manual_seed(1000 * cell["seed"] + 7)
    counts = {name: {"covered": 0, "warned": 0, "width": 0.0, "of": 0} for name in truths}
    rows = 1 if one.context is None else one.context.rows
    for _ in range(-(-cell["repetitions"] // rows)):
        sampler = SAMPLERS[cell["sampler"]]()
        for name, found in _estimates(one, sampler, generator).items():
            for estimate, truth in zip(found, truths[name].tolist(), strict=True):
                counts[name]["covered"] += estimate.low <= truth <= estimate.high
                counts[name]["warned"] += estimate.warning is not None
                counts[name]["width"] += estimate.high - estimate.low
                counts[name]["of"] += 1
    return {name: count for name, count in counts.items() if count["of"]}


def figures(results: Sequence[Result]) -> list[Row]:
    """How often the interval of each estimate held the truth."""
    found = []
    for (sampler, target), own in grouped(results, ("sampler", "target")).items():
        for name in own[0][1]:
            covered, warned, width, of = (
                sum(result[name][key] for _, result in own) for key in ("covered", "warned", "width", "of")
            )
            settings = {"sampler": sampler, "target": target, "estimate": name}
            settings |= {"mean width": f"{width / of:.3g}", "warned": f"{warned / of:.1%}"}
            share = plain_share(float(covered), float(of))
            found.append(row_of("coverage", settings, share, over=f"{of:,} repetitions"))
    return found


def notes(rows: Sequence[Row]) -> list[str]:
    """Which coverages are not what an interval of 95 % should have, and why."""
    outside = [row for row in rows if not LEAST <= (row.value or 0.0) <= MOST]
    others = [row for row in outside if float(row.settings["mean width"]) >= 1e-9]
    names = "; ".join("{sampler}, {target}, {estimate}".format(**row.settings) + f": {row.value:.3f}" for row in others)
    exact_ones = "The log Z of a distribution is 0, and is found without error: its interval always holds it."
    return [
        "Every interval is that of the plainest call on the draws; nothing told the estimators how they were made. "
        "Draws of Markov chains say nothing of Z, so there log Z and divergences are refused.",
        *([exact_ones] if len(others) < len(outside) else []),
        f"Outside {LEAST} to {MOST}: {names}." if names else f"All other coverages lie between {LEAST} and {MOST}.",
    ]


def _truths(one: Case) -> dict[str, Tensor]:
    names = [f"mean of {name}" for name in one.features.names]
    means = exact.moments(one.target, one.features, one.context).unbind(1)
    found = {"log Z": exact.log_z(one.target, one.context), **dict(zip(names, means, strict=True))}
    return found | {kind: exact.divergence(kind, one.target, one.base, one.context) for kind in DIVERGENCES}


def _estimates(one: Case, sampler: Any, generator: Generator) -> dict[str, list[Estimate]]:
    """The plainest call, row by row of the context. Draws of chains say nothing of Z, nor of what needs it."""
    draws = ebar.draw(sampler, one.target, DRAWS, context=one.context, generator=generator)
    names = [f"mean of {name}" for name in one.features.names]
    columns = zip(*ebar.moments(draws, one.features), strict=True)
    found = {name: list(column) for name, column in zip(names, columns, strict=True)}
    if sampler.weighted:
        found["log Z"] = [row.estimate for row in ebar.log_z(draws)]
        found |= {kind: ebar.divergence(kind, one.target, one.base, draws=draws) for kind in DIVERGENCES}
    return found


RECIPE = Recipe(
    title=f"Coverage of 95 % intervals from {DRAWS:,} draws, called with nothing but the draws",
    source="ebar's own",
    grid=cells,
    run=run_cell,
    figures=figures,
    tables=Layout(rows=("sampler", "target"), columns=("estimate",)),
    plots=Points(
        of=["coverage"], panels=("estimate",), label="{sampler}, {target}", title="{estimate}",
        x_label=f"coverage − {LEVEL}", less=LEVEL,
    ),
    notes=notes,
)  # fmt: skip
