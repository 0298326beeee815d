"""Figure 1: images drawn from a Gated PixelCNN trained with E-ARM, and completions of half images."""

from collections.abc import Sequence
from pathlib import Path

from ebar.recipes.earm.image_settings import BACKBONES, IMAGES
from ebar.recipes.earm.image_settings import cells as all_cells
from ebar.recipes.earm.images import run_cell
from ebar.recipes.experiment import Result
from ebar.recipes.recipe import Cell, Reading, Recipe, Row
from ebar.report.image_sheet import write_sheets


def cells(scale: str) -> list[Cell]:
    """The first seed is enough to be looked at."""
    return [cell for cell in all_cells(scale) if cell["seed"] == 0]


def figures(results: Sequence[Result]) -> list[Row]:
    """What each sheet shows, beside the test figure of its model."""
    rows = []
    for cell, result in results:
        for branch, suffix in (("base", ""), ("earm", " with E-ARM")):
            found = result[branch]
            test = found["test"]
            for what in ("samples", "completions"):
                rows.append(
                    Row(name="test bits per dimension", settings={
                        "model": BACKBONES[cell["backbone"]] + suffix, "sheet": what},
                        value=test["value"], low=test["low"], high=test["high"], picture=found[what])
                )  # fmt: skip
    return rows


def picture(rows: Sequence[Row], path: Path) -> None:
    """Sheets instead of curves."""
    sheets = {f"{row.settings['model']}: {row.settings['sheet']}": row.picture or "" for row in rows}
    write_sheets(sheets, path)


RECIPE = Recipe(
    title="Images drawn from PixelCNN and Gated PixelCNN, with and without E-ARM",
    source="document 003, Figure 1 (CIFAR-10); at scale cpu MNIST, one Bernoulli draw per pixel (seed 0)",
    grid=cells,
    run=run_cell,
    figures=[figures],
    picture=picture,
    runs="earm/images",
    reading=Reading(
        items=lambda row, cells: f"{cells[0]['test_images']:,} {IMAGES}",
        departures=lambda cells: [
            "The document's picture is of a Gated PixelCNN with E-ARM on CIFAR-10: no sheet here compares with it."
        ],
    ),
)
