"""How good the nearest-neighbour entropy gradient is, against the true one on Gaussians.

Figure B.8 of Dai 2019 (thesis) shows gradients during one training; here they are compared with what is known: for
draws of N(0, σ²I) the gradient of log p is −x/σ². Near the mode it is short and its direction noise, so points farther
out than σ are counted apart.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.maths.randomness import folded
from ebar.models.points import standard_normal
from ebar.objectives.entropy_terms import density_gradients
from ebar.recipes.cegan.methods import PAPER
from ebar.recipes.figures import Figure, Figures, over_items
from ebar.recipes.grid import Grid
from ebar.recipes.layout import Claim, Curves, Layout
from ebar.recipes.recipe import Caption, Cell, Recipe
from ebar.store.writing import plain
from ebar.types import Estimate

OUTSIDE, ALL = "points with |x| > σ", "all points"
COSINE = "mean cosine"
SLOPE = "projection on the true gradient, in its length"


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Over batches: the cosine with the true gradient, and how long the estimate is along it."""
    random = Generator().manual_seed(folded(cell["seed"], cell["neighbours"], cell["batch"], cell["dimensions"]))
    model = standard_normal(cell["dimensions"])
    batches = [
        compared(model.sample(cell["batch"], generator=random), cell["neighbours"]) for _ in range(cell["batches"])
    ]
    return {
        points: {name: _over_batches([one[points][name] for one in batches]) for name in (COSINE, SLOPE)}
        for points in (OUTSIDE, ALL)
    }


def compared(x: Float[Tensor, "batch dimensions"], neighbours: int) -> dict[str, dict[str, float]]:
    """Of draws of N(0, I): mean cosine of estimated and true gradient, and Σ ĝ·g / Σ g·g."""
    true, found = -x.double(), density_gradients(x, neighbours=neighbours).double()
    products = (true * found).sum(1)
    cosines = torch.nn.functional.cosine_similarity(true, found, dim=1)
    chosen = {OUTSIDE: x.norm(dim=1) > 1, ALL: torch.ones(len(x), dtype=torch.bool)}
    return {
        points: {
            COSINE: float(cosines[rows].mean()),
            SLOPE: float(products[rows].sum() / true[rows].square().sum()),
        }
        for points, rows in chosen.items()
    }


def _over_batches(values: Sequence[float]) -> dict[str, Any]:
    value, low, high = over_items(values, [1] * len(values))
    found: dict[str, Any] = plain(Estimate(value, low, high, len(values)))
    return found


def _cells(neighbours: Sequence[int], batches: Sequence[int], dimensions: Sequence[int]) -> list[dict[str, int]]:
    return [
        {"neighbours": count, "batch": size, "dimensions": width}
        for width in dimensions
        for size in batches
        for count in neighbours
        if count < size
    ]


def _points(cell: Cell, result: dict[str, Any]) -> list[Any]:
    """A run as one for each choice of points."""
    return [({**cell, "points": points}, own) for points, own in result.items()]


def _items(row: Any, cells: Sequence[Cell]) -> str:
    return f"{cells[0]['batches']} batches"


RECIPE = Recipe(
    title="The entropy gradient by nearest neighbours against the true one on Gaussians",
    source=f"ebar's own; the gradient of {PAPER}, B.10, as its public code has it for points, and Figure B.8",
    grid=Grid(
        common={"batches": {"demo": 3, "cpu": 40, "paper": 400}},
        axes={"case": {
            "demo": _cells([5, 20], [100], [2]),
            "cpu": _cells([5, 10, 20, 50, 100, 200], [250, 500, 1000], [2, 10, 50]),
            "paper": _cells([5, 10, 20, 50, 100, 200, 400], [250, 500, 1000, 2000], [2, 5, 10, 20, 50, 100]),
        }},
    ),
    run=run_cell,
    figures=Figures(
        Figure(name=COSINE, at=lambda result: result[COSINE], range=(-1.0, 1.0)),
        Figure(name=SLOPE, at=lambda result: result[SLOPE]),
        by=("dimensions", "batch", "neighbours", "points"), parts=_points,
    ),
    tables=[
        Layout(rows=("dimensions", "batch", "points"), columns=("neighbours",), figures=(name,), caption=name)
        for name in (COSINE, SLOPE)
    ],
    plots=[
        Curves(of={COSINE: "batches of {batch}"}, x="neighbours", by=("batch",), panels=("dimensions",), log_x=True,
               where={"points": OUTSIDE}, title="{dimensions} dimensions, " + OUTSIDE, y_label=COSINE,
               levels={"0.9": 0.9}),
        Curves(of={SLOPE: "batches of {batch}"}, x="neighbours", by=("batch",), panels=("dimensions",), log_x=True,
               where={"points": OUTSIDE}, title="{dimensions} dimensions, " + OUTSIDE, y_label=SLOPE,
               levels={"unbiased": 1.0}),
    ],
    claims=[
        Claim(says="50 neighbours of 500 point the right way in the plane", figure=COSINE, above=0.9,
              where={"points": OUTSIDE, "neighbours": 50, "batch": 500, "dimensions": 2}),
        Claim(says="20 of 500, the authors' choice, do too", figure=COSINE, above=0.9,
              where={"points": OUTSIDE, "neighbours": 20, "batch": 500, "dimensions": 2}),
    ],
    notes=lambda rows: [
        "With few neighbours the direction is noise, with many the ball is no longer small: the estimate falls behind "
        "the gradient, most where dimensions are many. A projection above 1 says that the entropy counts for more than "
        "its weight α, and that the learnt energy is steeper than −α·log p by about that factor."
    ],
    reading=Caption(items=_items),
)  # fmt: skip
