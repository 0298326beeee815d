"""Figures 2 to 7 of Parshakova et al. 2019: cross-entropy, ℓ1_mom and motif frequency against |D|.

At scale cpu all runs of one language and seed have the same r, and Tables 1 and 3 are read off the same runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.gam import cells as gam
from ebar.recipes.gam.cells import GAP, MORE, MOTIF, PURE, SIZES
from ebar.recipes.pieces import Cell, Claim, Curves, Figures, Layout, Recipe, Row

PANELS = ("motif", "ft", "presence", "regime")
KEYS = (*PANELS, "matching", "size")
# Panel → the figures in it, with the names of their lines.
CURVES = {
    "cross-entropy, nats per token": {"cross-entropy of r": "r, {matching}", "cross-entropy of π": "π, {matching}"},
    "motif frequency, 2,000 draws": {"motif frequency of r": "r, {matching}", "motif frequency of π": "π, {matching}"},
    "ℓ1_mom to the truth": {"ℓ1_mom of r": "r, {matching}", "ℓ1_mom of the distilled set": "distilled, {matching}"},
}  # fmt: skip


PAPER = "Parshakova et al. 2019"
GAM: dict[str, Any] = {"run": gam.run_cell, "reading": gam.READING, "runs": "gam/motifs"}
AGAINST_SIZE: dict[str, Any] = {"x": "size", "x_label": "|D|", "log_x": True}
PANELLED: dict[str, Any] = {
    **AGAINST_SIZE, "by": ("matching",), "panels": PANELS, "title": "{motif}, ft {ft}, presence {presence:g}, {regime}",
}  # fmt: skip
# What time allows at scale cpu: the authors' r and λ with a smaller π, at the two smallest |D| of the paper.
SMALL = {"demo": "authors", "cpu": "small_student", "paper": "authors"}
SMALL_SIZES = {"demo": (60,), "cpu": (500, 1000), "paper": SIZES}
WAYS = {
    "demo": [{"matching": "newton", "seed": 0}],
    "cpu": [{"matching": "rs", "seed": 0}],
    "paper": [{"matching": matching, "seed": 0} for matching in ("rs", "snis")],
}


def motif_grid(axes: dict[str, Any], **more: Any) -> Any:
    """Runs of two-stage training. Ways of finding λ vary slowest: the first trains r, the others find it trained."""
    return gam.gam_grid(axes, **{"recipe": SMALL, "patience": gam.PATIENCE, **more})


def larger_run(scale: str, **more: Any) -> list[Cell]:
    """Of panel (c) with |D| = 5,000; at scale cpu too r has as many epochs as the authors'."""
    sizes = {"demo": (60,), "cpu": (5000,), "paper": (5000,)}
    epochs = {"demo": None, "cpu": gam.EPOCHS, "paper": None}
    return list(motif_grid({"size": sizes}, matching="rs", base_epochs=epochs, **more)(scale))


CLAIMS = [
    Claim(says="π has a lower cross-entropy than r where data are few", figure=GAP.name, above=0.0),
    Claim(says="π has the motif oftener than r", figure=MORE.name, above=0.0),
]


def beyond(rows: Sequence[Row]) -> list[str]:
    """What the paper says of more data than these runs have."""
    most = max((row.settings["size"] for row in rows if "size" in row.settings), default=SIZES[-1])
    if most >= SIZES[-1]:
        return []
    return [
        f"Not answerable at this size: that r and π come near each other from |D| = 10,000 on. Here |D| is at most "
        f"{most:,}; a run with 20,000 by the authors' settings (130 epochs each of r and π) takes about four hours of "
        "one core."
    ]


def figure(
    number: int, title: str, settings: Sequence[dict[str, Any]], panels: int = 3, ways: Any = None, **more: Any
) -> Recipe:
    """A figure with these settings; at scale demo only its first, at scale cpu two |D|."""
    own = {"ways": ways or WAYS, "setting": {"demo": settings[:1], "cpu": settings, "paper": settings}}
    return Recipe(
        title=title,
        source=f"{PAPER}, Figure {number}",
        grid=motif_grid({**own, "size": SMALL_SIZES}, **more),
        figures=Figures(gam.ENTROPY, *gam.STANDARD, GAP, MORE, by=KEYS),
        tables=Layout(rows=KEYS, names={"size": "|D|"}),
        plots=[
            Curves(of=lines, y_label=label, levels={"H": "entropy"} if "entropy" in label else {}, **PANELLED)
            for label, lines in list(CURVES.items())[:panels]
        ],
        claims=CLAIMS,
        notes=beyond,
        **GAM,
    )


def _figure2(scale: str) -> list[Cell]:
    """At scale cpu three seeds for λ by rejection and by newton, and one for importance sampling."""
    panels = [
        {"motif": "001001100111", "ft": "0111111"},
        {"motif": "1011100111001", "ft": "1011111"},
        {"motif": MOTIF},
        {"motif": MOTIF, "presence": 0.9},
    ]
    several = [{"matching": matching, "seed": seed} for matching in ("rs", "newton") for seed in range(3)]
    ways = {**WAYS, "cpu": [*several, {"matching": "snis", "seed": 0}]}
    setting = {"demo": panels[:1], "cpu": panels, "paper": panels}
    cells = motif_grid({"ways": ways, "setting": setting, "size": SMALL_SIZES})(scale)
    return [*cells, *(larger_run(scale) if scale == "cpu" else [])]


FIGURE2 = replace(
    figure(2, "Cross-entropy and motif frequency against |D|, two-stage training", [{}], panels=2), grid=_figure2
)
FIGURE4, FIGURE5, FIGURE6 = (
    figure(number, f"Pure D, {what}: motifs of all rarities", [{"motif": motif, "ft": ft} for motif in PURE])
    for number, what, ft in (
        (4, "features supermotif and submotif", "0111111"),
        (5, "features motif and submotif", "1011111"),
        (6, "feature motif", "1001111"),
    )
)
FIGURE7 = figure(
    7, "Mixture D, feature motif: motifs of all rarities", [{"motif": motif, "presence": 0.9} for motif in gam.MIXED]
)

# Cyclical training is about the time that rejection from r takes, so that at scale cpu draws are made in that way too.
REGIMES = ("two_stage", "cyclical")
CYCLES = {
    "demo": [{"matching": "snis", "size": 60, "seed": 0}],
    "cpu": [
        *({"matching": "rs", "size": 1000, "seed": seed} for seed in range(3)),
        *({"matching": matching, "size": size, "seed": 0} for matching, size in (("rs", 500), ("snis", 1000),
                                                                               ("snis", 500))),
    ],
    "paper": [{"matching": matching, "size": size, "seed": 0} for matching in ("rs", "snis") for size in SIZES],
}  # fmt: skip


def regimes(*which: str) -> Any:
    """Runs of these regimes. At scale cpu r is small: from the authors', 20,000 draws take over an hour."""
    network = {"demo": [{}], "cpu": [{"layers": 1, "hidden": 64}], "paper": [{}]}
    return motif_grid({"network": network, "ways": CYCLES, "regime": which}, rejection=True)


FIGURE3 = replace(figure(3, "Cyclical training against |D|", [{}]), grid=regimes("cyclical"))
