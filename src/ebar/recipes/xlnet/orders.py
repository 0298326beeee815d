"""How likely an XLNet finds a text in different orders: from left to right, from right to left, at random.

Each order is a factorisation of a distribution over the same tokens. Were they all of one distribution, their
probabilities would agree; how far apart they are says how well a network has learnt that they should.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.build.train import train_as
from ebar.models.construction import Autoregressive
from ebar.recipes.figures import over_items
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe, layouts
from ebar.recipes.xlnet.cells import PAPER, pretraining_config
from ebar.recipes.xlnet.models import LEFT, XLNET, cell_of
from ebar.recipes.xlnet.tables import BASE, SMALL, TOY
from ebar.store.writing import plain
from ebar.types import Context, Estimate, Sequences

FORWARDS, BACKWARDS, RANDOM = "left to right", "right to left", "at random"
NATS, APART = "nats per token", f"nats per token − {FORWARDS}"
SPREAD = "standard deviation over random orders, nats per token"
SPAN, SCATTERED = "a span", "scattered tokens"


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Costs of some tokens of held-out windows given the others, by the order in which they are predicted."""
    run = train_as(pretraining_config(cell, folder), folder / "pretrained")
    how = cell["measures"]
    generator = Generator().manual_seed(cell["seed"])
    tokens = run.data.test.tokens.flatten()
    rows, length, predicted = how["windows"], how["length"], how["predicted"]
    starts = torch.linspace(0, len(tokens) - length, rows).long()
    windows = tokens[starts[:, None] + torch.arange(length)]
    first = torch.randint(length - predicted + 1, (rows, 1), generator=generator)
    gaps = {
        SPAN: first + torch.arange(predicted),
        SCATTERED: torch.rand(rows, length, generator=generator).argsort(1)[:, :predicted].sort(1).values,
    }
    return {name: costs(run.model, windows, places, how["orders"], generator) for name, places in gaps.items()}


@torch.no_grad()
def costs(
    model: Autoregressive, windows: Int[Tensor, "rows length"], gaps: Int[Tensor, "rows predicted"], orders: int,
    generator: Generator,
) -> dict[str, Any]:  # fmt: skip
    """Nats per token of what stands in the gaps, with intervals over windows; gaps are numbered from left to right."""
    shuffled = [gaps.gather(1, torch.rand(gaps.shape, generator=generator).argsort(1)) for _ in range(orders)]
    left, right = (nats(model, windows, places) for places in (gaps, gaps.flip(1)))
    drawn = torch.stack([nats(model, windows, places) for places in shuffled])
    mean = drawn.mean(0)
    size = gaps.shape[1]
    found = {FORWARDS: left, BACKWARDS: right, RANDOM: mean}
    return {
        "nats": {name: _per_token(cost, size) for name, cost in found.items()},
        "apart": {name: _per_token(cost - left, size) for name, cost in found.items() if name != FORWARDS},
        "spread": _per_token(drawn.std(0), size),
    }


def nats(
    model: Autoregressive, windows: Int[Tensor, "rows length"], places: Int[Tensor, "rows predicted"]
) -> Float[Tensor, " rows"]:
    """Of the tokens at some places, predicted in the order in which these are given, from all others."""
    rows, length = windows.shape
    inside = torch.ones(rows, length, dtype=torch.bool).scatter(1, places, value=False)
    others = torch.arange(length).expand(rows, -1)[inside].view(rows, -1)
    given = Sequences(windows.gather(1, others), torch.full((rows,), others.shape[1]))
    x = Sequences(windows.gather(1, places), torch.full((rows,), places.shape[1]))
    return -model.log_prob(x, Context(given, torch.cat([others, places], 1))).double()


def _per_token(cost: Float[Tensor, " rows"], size: int) -> dict[str, Any]:
    value, low, high = over_items((cost / size).tolist(), [1] * len(cost))
    found: dict[str, Any] = plain(Estimate(value, low, high, len(cost)))
    return found


def _cells(tree: Mapping[str, Any], **measures: int) -> list[dict[str, Any]]:
    return [{**cell_of(tree, name, {}), "measures": measures} for name in (XLNET, LEFT)]


RECIPE = Recipe(
    title="The likelihood of text by the order of prediction",
    source=f"ebar's own; the orders of {PAPER}, section 4.2.2",
    grid=Grid(
        axes={"model": {
            "demo": _cells(TOY, windows=20, length=12, predicted=3, orders=3),
            "cpu": _cells(SMALL, windows=400, length=48, predicted=8, orders=8),
            "paper": _cells(BASE, windows=1000, length=256, predicted=16, orders=16),
        }},
        seeds=1,
    ),
    run=run_cell,
    figures=Figures(
        Figure(name=NATS, at="nats.{order}", each={"order": "nats"}, range=(0.0, 100.0)),
        Figure(name=APART, at="apart.{order}", each={"order": "apart"}),
        Figure(name=SPREAD, at="spread", range=(0.0, 100.0)),
        by=("model", "predicted"),
        parts=lambda cell, result: [({**cell, "predicted": name}, own) for name, own in result.items()],
    ),
    tables=[
        *layouts(("model", "predicted"), NATS, APART, columns=("order",)),
        Layout(rows=("model", "predicted"), figures=(SPREAD,)),
    ],
    plots=Points(of=[APART], label="{model}, {order}", title="{predicted}", x_label=APART, panels=("predicted",)),
    claims=[
        Claim(says="a network that learnt only from left to right is worse at random orders", figure=APART, above=0.0,
              where={"model": LEFT, "order": RANDOM}),
    ],
    reading=Caption(items="{measures[windows]:,} windows, one pretraining"),
)  # fmt: skip
