"""Figures 2 to 7 of Parshakova et al. 2019: cross-entropy, ℓ1_mom and motif frequency against |D|."""

from collections.abc import Sequence
from typing import Any

from ebar.recipes.figures import Figures
from ebar.recipes.gam.cells import ENTROPY, MIXED, MOTIF, PURE, READING, SIZES, STANDARD, gam_grid, run_cell
from ebar.recipes.layout import Layout
from ebar.recipes.plots import Curves
from ebar.recipes.recipe import Recipe

PANELS = ("motif", "ft", "presence", "regime")
KEYS = (*PANELS, "matching", "size")
# Panel → the figures in it, with the names of their lines.
CURVES = {
    "cross-entropy, nats per token": {"cross-entropy of r": "r, {matching}", "cross-entropy of π": "π, {matching}"},
    "motif frequency, 2,000 draws": {"motif frequency of r": "r, {matching}", "motif frequency of π": "π, {matching}"},
    "ℓ1_mom to the truth": {"ℓ1_mom of r": "r, {matching}", "ℓ1_mom of the distilled set": "distilled, {matching}"},
}  # fmt: skip


def figure(number: int, title: str, settings: Sequence[dict[str, Any]], panels: int = 3) -> Recipe:
    """A figure with these settings; at scale demo only its first, at scale cpu two |D|."""
    return Recipe(
        title=title,
        source=f"Parshakova et al. 2019, Figure {number}",
        grid=gam_grid(
            {
                "setting": {"demo": settings[:1], "cpu": settings, "paper": settings},
                "matching": {"demo": ["newton"], "cpu": ["newton"], "paper": ["rs", "snis"]},
                "size": {"demo": (60,), "cpu": (500, 5000), "paper": SIZES},
            }
        ),
        run=run_cell,
        figures=[Figures(by=KEYS, of=[ENTROPY, *STANDARD])],
        tables=[Layout(rows=KEYS, names={"size": "|D|"})],
        plots=[
            Curves(
                of=lines,
                x="size",
                x_label="|D|",
                y_label=label,
                title="{motif}, ft {ft}, presence {presence:g}, {regime}",
                by=("matching",),
                panels=PANELS,
                levels={"H": "entropy"} if label.startswith("cross-entropy") else {},
                log_x=True,
            )
            for label, lines in list(CURVES.items())[:panels]
        ],
        reading=READING,
    )


FIGURE2 = figure(
    2,
    "Cross-entropy and motif frequency against |D|, two-stage training",
    [
        {"motif": "001001100111", "ft": "0111111"},
        {"motif": "1011100111001", "ft": "1011111"},
        {"motif": MOTIF},
        {"motif": MOTIF, "presence": 0.9},
    ],
    panels=2,
)
FIGURE3 = figure(3, "Cyclical training against |D|", [{"regime": "cyclical"}])
FIGURE4, FIGURE5, FIGURE6 = (
    figure(number, f"Pure D, {what}: motifs of all rarities", [{"motif": motif, "ft": ft} for motif in PURE])
    for number, what, ft in (
        (4, "features supermotif and submotif", "0111111"),
        (5, "features motif and submotif", "1011111"),
        (6, "feature motif", "1001111"),
    )
)
FIGURE7 = figure(
    7, "Mixture D, feature motif: motifs of all rarities", [{"motif": motif, "presence": 0.9} for motif in MIXED]
)
