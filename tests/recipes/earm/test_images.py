"""The image recipes at a small scale."""

import base64
from pathlib import Path
from typing import Any

import pytest

from ebar.recipes.earm import figure1, table5
from ebar.recipes.earm.image_settings import cells


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, Any]]]:
    folder: Path = tmp_path_factory.mktemp("images")
    return [(cell, table5.RECIPE.run(cell, folder / cell["backbone"])) for cell in cells("demo")]


def test_figures_are_of_both_networks_with_and_without(made):
    rows = table5.RECIPE.rows(made)
    tests = [row for row in rows if row.name == table5.BITS]
    assert [row.settings["model"] for row in tests] == [
        "PixelCNN", "PixelCNN with E-ARM", "Gated PixelCNN", "Gated PixelCNN with E-ARM",
    ]  # fmt: skip
    differences = [row for row in rows if row.name == table5.DIFFERENCE]
    assert differences[0].value == pytest.approx((tests[1].value or 0) - (tests[0].value or 0), abs=1e-9)


def test_both_recipes_read_the_same_runs(made):
    assert figure1.RECIPE.grid("demo") == [cell for cell in cells("demo") if cell["seed"] == 0]
    assert figure1.RECIPE.runs == table5.RECIPE.runs


def test_sheets_are_pictures(made):
    rows = figure1.RECIPE.rows(made)
    assert len(rows) == 8
    assert all(base64.b64decode(row.picture or "").startswith(b"\x89PNG") for row in rows)
