"""How good the nearest-neighbour entropy gradient is, against the true one on Gaussians.

Figure B.8 of Dai 2019 (thesis) shows gradients during one training; here they are compared with what is known.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.evaluation.entropy_gradient import entropy_gradient_quality
from ebar.maths.randomness import folded
from ebar.recipes.cegan.methods import PAPER
from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Grid, Recipe, layouts
from ebar.store.writing import plain

OUTSIDE, EVERYWHERE = "mean cosine, points with |x| > σ", "mean cosine, all points"
PROJECTION = "projection on the true gradient, relative to it, points with |x| > σ"
FIGURES = {OUTSIDE: "outside", EVERYWHERE: "everywhere", PROJECTION: "length"}


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """One number of neighbours, one size of batches, one of dimensions."""
    case = {key: cell[key] for key in ("neighbours", "batch", "dimensions", "repeats")}
    found = entropy_gradient_quality(**case, generator=Generator().manual_seed(folded(cell["seed"], *case.values())))
    return {name: plain(estimate) for name, estimate in found._asdict().items()}


def _cells(neighbours: Sequence[int], batches: Sequence[int], dimensions: Sequence[int]) -> list[dict[str, int]]:
    return [
        {"neighbours": count, "batch": size, "dimensions": width}
        for width in dimensions
        for size in batches
        for count in neighbours
        if count < size
    ]


def _curves(figure: str, **levels: float) -> Curves:
    return Curves(
        of={figure: "batches of {batch}"}, x="neighbours", by=("batch",), panels=("dimensions",), log_x=True,
        title="{dimensions} dimensions", y_label=figure, levels=levels,
    )  # fmt: skip


RECIPE = Recipe(
    title="The entropy gradient by nearest neighbours against the true one on Gaussians",
    source=f"ebar's own; the gradient of {PAPER}, B.10, as its public code has it for points, and Figure B.8",
    grid=Grid(
        common={"repeats": {"demo": 3, "cpu": 30, "paper": 400}},
        axes={"case": {
            "demo": _cells([5, 20], [100], [2]),
            "cpu": _cells([5, 10, 20, 50, 100, 200], [250, 500, 1000], [2, 10, 50]),
            "paper": _cells([5, 10, 20, 50, 100, 200, 400], [250, 500, 1000, 2000], [2, 5, 10, 20, 50, 100]),
        }},
    ),
    run=run_cell,
    figures=Figures(
        *(Figure(name=name, at=at, range=None if name == PROJECTION else (-1.0, 1.0)) for name, at in FIGURES.items()),
        by=("dimensions", "batch", "neighbours"),
    ),
    tables=layouts(("dimensions", "batch"), *FIGURES, columns=("neighbours",)),
    plots=[_curves(OUTSIDE, **{"0.9": 0.9}), _curves(PROJECTION, unbiased=1.0)],
    claims=[
        Claim(says=f"{count} neighbours of 500{whose} point the right way in the plane", figure=OUTSIDE, above=0.9,
              where={"neighbours": count, "batch": 500, "dimensions": 2},
              because="so few neighbours of so large a batch lie so close that their direction is mostly noise; the "
              "cosine rises with their number, and falls as the batch grows.")
        for count, whose in ((50, ""), (20, ", the authors' choice,"))
    ],
    notes=lambda rows: [
        "With few neighbours the direction is noise, with many the ball that they lie in is no longer small, and the "
        "more dimensions there are, the larger it is. A projection above 1 says that the entropy counts for more than "
        "its weight α: the learnt energy is then steeper than −α·log p by about that factor."
    ],
    reading=Caption(items="{repeats} batches"),
)  # fmt: skip
