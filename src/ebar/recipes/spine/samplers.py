"""Every sampler on a target whose every probability is known: total variation and cost against n."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.features.feature import Features
from ebar.features.length import Length
from ebar.features.motif import Motif
from ebar.maths.enumeration import all_sequences
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.statistics import over_seeds
from ebar.report.plots import Line, Panel, draw
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw as gather
from ebar.types import Sampler, Space, Weighted

SPACE = Space(3, 9, 2)  # binary strings of up to 8 symbols, and their end: 511 of them
SIZES = {"demo": [100, 1000], "cpu": [100, 1000, 10_000, 100_000], "paper": [100, 1000, 10_000, 100_000, 1_000_000]}
SEEDS = {"demo": 5, "cpu": 10, "paper": 20}
# The motif needs five tokens, end included, so P/q ≤ e^(4 − 0.2·5) = e³: with that β quasi-rejection has no bias, and a
# tighter ceiling than the e^3.8 that the features' ranges give rejection.
OPTIONS: dict[str, dict[str, Any]] = {"quasi_rejection": {"log_beta": 3.0}, "metropolis": {"chains": 100}}
IDEAL = "ideal"  # i.i.d. draws from p itself: the yardstick (weights, which know P, can beat it)


def target() -> Tilted:
    """A random autoregressive table, tilted towards a motif and away from length: Z is far from 1, p from q."""
    base = Tabular.random(SPACE, generator=Generator().manual_seed(20190915))
    features = Features([Motif(motif="1011", alphabet="01", end=2), Length(longest=SPACE.length, end=2)])
    return Tilted(base, Linear(features, torch.tensor([4.0, -0.2], dtype=torch.float64)))


class Samplers:
    """The recipe."""

    title = "Samplers on an enumerable target: total variation and cost against the number of draws"
    source = "ebar's own"
    reading = Reading(
        ranges={"total_variation": (0.0, 1.0)},
        # What the ideal costs was never measured: records of the first format have 0 for it.
        correct=lambda recorded: [
            row for row in recorded.rows if row.settings["sampler"] != IDEAL or row.name == "total_variation"
        ],
        shared="All seeds have the same target: an interval speaks for other draws from it.",
    )

    def grid(self, scale: str) -> list[Cell]:
        names = [name for name in SAMPLERS if name != "ancestral"]  # a tilted model has nothing to draw it from
        return [
            {"sampler": name, "n": n, "seed": seed}
            for n in SIZES[scale]
            for name in [IDEAL, *names]
            for seed in range(SEEDS[scale])
        ]

    def run(self, cell: Cell, folder: Path) -> dict[str, Any]:
        tilted = target()
        truth = exact.log_probabilities(tilted)[0].detach().exp()
        generator = Generator().manual_seed(cell["seed"])
        if cell["sampler"] == IDEAL:
            counts = torch.bincount(
                torch.multinomial(truth, cell["n"], True, generator=generator), minlength=len(truth)
            )
            return {"total_variation": _distance(counts / cell["n"], truth), "energies_per_draw": 0.0, "seconds": 0.0}
        sampler: Sampler = SAMPLERS[cell["sampler"]](**OPTIONS.get(cell["sampler"], {}))
        asked = []
        # Rejection and look-ahead know what to do with a linear energy only, so it is not wrapped but watched.
        assert isinstance(tilted.energy, Linear)
        tilted.energy.register_forward_hook(lambda _, inputs, __: asked.append(len(inputs[0].lengths)))
        began = time.perf_counter()
        drawn = gather(sampler, tilted, cell["n"], generator=generator)
        seconds = time.perf_counter() - began
        return {
            "total_variation": _distance(_histogram(drawn), truth),
            "energies_per_draw": sum(asked) / cell["n"],
            "seconds": seconds,
        }

    def rows(self, scale: str, results: Sequence[tuple[Cell, dict[str, Any]]]) -> list[Row]:
        rows = []
        for name in dict.fromkeys(cell["sampler"] for cell, _ in results):
            for n in SIZES[scale]:
                own = [result for cell, result in results if (cell["sampler"], cell["n"]) == (name, n)]
                settings = {"sampler": name, "n": n}
                rows.append(_figure("total_variation", settings, own))
                if name == IDEAL:
                    continue
                rows.append(_figure("energies_per_draw", settings, own))
                micro = [1e6 * result["seconds"] / n for result in own]
                rows.append(over_seeds("microseconds_per_draw", settings, micro, least=0.0))
        return rows

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        panels = []
        for figure, label in (("total_variation", "total variation to p"), ("energies_per_draw", "energies per draw")):
            lines = []
            for name in dict.fromkeys(row.settings["sampler"] for row in rows):
                own = [row for row in rows if row.name == figure and row.settings["sampler"] == name]
                if figure == "energies_per_draw" and name == IDEAL:
                    continue
                lines.append(
                    Line(
                        name=name,
                        x=[float(row.settings["n"]) for row in own],
                        y=[row.value or 0.0 for row in own],
                        low=[row.low or 0.0 for row in own],
                        high=[row.high or 0.0 for row in own],
                        dashed=name == IDEAL,
                    )
                )
            panels.append(Panel(title=label, x_label="draws n", y_label=label, lines=lines, log_x=True, log_y=True))
        draw(panels, path)


def _figure(name: str, settings: dict[str, Any], results: Sequence[dict[str, Any]]) -> Row:
    return over_seeds(name, settings, [result[name] for result in results], least=0.0)


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


RECIPE = Samplers()
