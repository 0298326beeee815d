"""Every sampler on a target whose every probability is known: total variation and cost against n."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

import ebar
from ebar.estimators import exact
from ebar.maths.enumeration import all_sequences
from ebar.recipes.pieces import Caption, Cell, Curves, Figure, Figures, Grid, Layout, Recipe
from ebar.samplers import SAMPLERS
from ebar.types import Sampler, Space, Weighted

SPACE = Space(3, 9, 2)  # binary strings of up to 8 symbols, and their end: 511 of them
SIZES = {"demo": [100, 1000], "cpu": [100, 1000, 10_000, 100_000], "paper": [100, 1000, 10_000, 100_000, 1_000_000]}
SEEDS = {"demo": 2, "cpu": 10, "paper": 20}
# The motif needs five tokens, end included, so P/q ≤ e^(4 − 0.2·5) = e³: with that β quasi-rejection has no bias, and a
# tighter ceiling than the e^3.8 that the features' ranges give rejection.
OPTIONS: dict[str, dict[str, Any]] = {"quasi_rejection": {"log_beta": 3.0}, "metropolis": {"chains": 100}}
IDEAL = "ideal"  # i.i.d. draws from p itself: the yardstick (weights, which know P, can beat it)


def target() -> ebar.Tilted:
    """A random autoregressive table, tilted towards a motif and away from length: Z is far from 1, p from q."""
    base = ebar.Tabular.random(SPACE, generator=Generator().manual_seed(20190915))
    features = ebar.Features([ebar.Motif(motif="1011", alphabet="01", end=2), ebar.Length(longest=SPACE.length, end=2)])
    return ebar.Tilted(base, ebar.Linear(features, torch.tensor([4.0, -0.2], dtype=torch.float64)))


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Draws of one sampler, how far they are from p, and what they cost."""
    tilted = target()
    truth = exact.log_probabilities(tilted)[0].detach().exp()
    generator = Generator().manual_seed(cell["seed"])
    if cell["sampler"] == IDEAL:
        counts = torch.bincount(torch.multinomial(truth, cell["n"], True, generator=generator), minlength=len(truth))
        found = {"total_variation": _distance(counts / cell["n"], truth)}
        return {**found, "energies_per_draw": None, "microseconds_per_draw": None}
    sampler: Sampler = SAMPLERS[cell["sampler"]](**OPTIONS.get(cell["sampler"], {}))
    asked = []
    # Rejection and look-ahead know what to do with a linear energy only, so it is not wrapped but watched.
    assert isinstance(tilted.energy, ebar.Linear)
    tilted.energy.register_forward_hook(lambda _, inputs, __: asked.append(len(inputs[0].lengths)))
    began = time.perf_counter()
    drawn = ebar.draw(sampler, tilted, cell["n"], generator=generator)
    seconds = time.perf_counter() - began
    return {
        "total_variation": _distance(_histogram(drawn), truth),
        "energies_per_draw": sum(asked) / cell["n"],
        "microseconds_per_draw": 1e6 * seconds / cell["n"],
    }


def _histogram(drawn: Weighted) -> Float[Tensor, " sequences"]:
    """The weighted empirical distribution over the whole space."""
    x = drawn.x
    everything = all_sequences(SPACE)
    place = {tuple(everything.prefix(row)): row for row in range(len(everything.lengths))}
    where = torch.tensor([place[tuple(x.prefix(row))] for row in range(len(x.lengths))])
    share = drawn.log_weights[0].double().softmax(0)
    return torch.zeros(len(place), dtype=torch.float64).index_add_(0, where, share)


def _distance(found: Float[Tensor, " sequences"], truth: Float[Tensor, " sequences"]) -> float:
    return float((found - truth).abs().sum() / 2)


FIGURES = {
    "total_variation": ("total variation to p", (0.0, 1.0)),
    "energies_per_draw": ("energies per draw", (0.0, math.inf)),
    "microseconds_per_draw": ("microseconds per draw", (0.0, math.inf)),
}
RECIPE = Recipe(
    title="Samplers on an enumerable target: total variation and cost against the number of draws",
    source="ebar's own",
    # A tilted model has nothing for ancestral sampling to draw it from. Samplers that are registered later count too.
    grid=lambda scale: Grid(
        axes={"n": SIZES, "sampler": [IDEAL, *(name for name in SAMPLERS if name != "ancestral")]}, seeds=SEEDS
    )(scale),
    run=run_cell,
    figures=Figures(*(Figure(name=name, at=name, range=ends) for name, (_, ends) in FIGURES.items()),
                    by=("sampler", "n")),
    tables=[
        Layout(rows=("sampler",), columns=("n",), figures=(name,), caption=f"{label[0].upper()}{label[1:]}:")
        for name, (label, _) in FIGURES.items()
    ],
    plots=[
        Curves(of={name: "{sampler}"}, by=("sampler",), x="n", x_label="draws n", title=FIGURES[name][0],
               dashed=(IDEAL,), log_x=True, log_y=True)
        for name in ("total_variation", "energies_per_draw")
    ],
    reading=Caption(shared="All seeds have the same target: an interval is valid for other draws from it."),
)  # fmt: skip
