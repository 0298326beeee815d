"""Table 2: translation into German by models of two sizes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.earm.readings import compared, difference_dots
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, SEEDS, VARIANTS, cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.report.plots import Dots

# Table 6: 12 layers are 6 + 6. METEOR's synonyms are English.
WMT: dict[str, Any] = {
    "corpus": "wmt16-en-de", "vocabulary": 32_000, "learning_rate": 1e-3, "meteor": False, "candidates": [],
}  # fmt: skip
# What sets each size apart from the settings of its scale.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {"base": {"candidates": []}, "large": {"candidates": [], "hidden": 24, "feedforward": 48}},
    "cpu": {
        "base": {"candidates": []},
        "large": {"candidates": [], "layers": 2, "hidden": 192, "feedforward": 768},
    },
    "paper": {
        "base": {**WMT, "hidden": 512, "feedforward": 2048, "heads": 8, "start_epoch": 15},
        "large": {**WMT, "hidden": 1024, "feedforward": 4096, "heads": 16, "start_epoch": 10},
    },
}
# At scale demo the last row of the document's table will do.
CHOSEN = {"demo": ("scheduled sampling",), "cpu": tuple(VARIANTS), "paper": tuple(VARIANTS)}
SYSTEMS = {
    **{variant: (variant, "base") for variant in VARIANTS},
    **{f"{variant} + E-ARM": (variant, "earm") for variant in VARIANTS},
}
PAIRS = [(f"{variant} + E-ARM", variant) for variant in VARIANTS]
# Size and system → BLEU on WMT16; scheduled sampling has label smoothing too.
DOCUMENT = {
    "base": {"base": 27.56, "label smoothing": 28.04, "scheduled sampling": 28.36, "scheduled sampling + E-ARM": 28.62},
    "large": {"base": 28.70, "label smoothing": 29.05, "scheduled sampling": 29.23,
              "scheduled sampling + E-ARM": 29.44},
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """Both sizes, every variant; seeds first, so that whole pairs are there early."""
    return [
        cell_for(scale, variant=variant, direction="en→de", seed=seed, size=size, **more)
        for seed in range(SEEDS[scale])
        for size, more in SIZES[scale].items()
        for variant in CHOSEN[scale]
    ]


def figures(results: Sequence[Result]) -> list[Row]:
    """BLEU by beam 5, and what E-ARM changes, for each size."""
    rows = []
    for size in dict.fromkeys(cell["size"] for cell, _ in results):
        own = [(cell, result) for cell, result in results if cell["size"] == size]
        there = {cell["variant"] for cell, _ in own}
        told = {("en→de", system): bleu for system, bleu in DOCUMENT[size].items()}
        rows += compared(
            own, "BLEU, beam 5", lambda branch: branch["bleu"]["5"], told,
            systems={name: place for name, place in SYSTEMS.items() if place[0] in there}, pairs=PAIRS, size=size,
        )  # fmt: skip
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    return [difference_dots(rows, "Paired over seeds", "BLEU", "size", "system")]


RECIPE = Experiment(
    title="Translation en→de by models of two sizes, with and without E-ARM",
    source="document 003, Table 2 (WMT16); at scale cpu 20,000 pairs of Tatoeba",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=replace(READING, elsewhere=lambda cells: None if cells[0]["corpus"] == WMT["corpus"] else "WMT16"),
)
