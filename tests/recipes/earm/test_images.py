"""The image recipes at a small scale."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ebar.build.train import build_corpus
from ebar.recipes.earm.images import BITS, FIGURE1, GAIN, TABLE5
from ebar.recipes.earm.twins import configurations
from ebar.store.writing import to_json


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, Any]]]:
    folder: Path = tmp_path_factory.mktemp("images")
    return [(cell, json.loads(to_json(TABLE5.run(cell, folder / cell["backbone"])))) for cell in TABLE5.grid("demo")]


def test_figures_are_of_both_networks_with_and_without(made):
    rows = TABLE5.rows(made)
    tests = [row for row in rows if row.name == BITS]
    assert [row.settings["model"] for row in tests] == [
        "PixelCNN", "PixelCNN with E-ARM", "Gated PixelCNN", "Gated PixelCNN with E-ARM",
    ]  # fmt: skip
    differences = [row for row in rows if row.name == GAIN]
    assert differences[0].value == pytest.approx((tests[1].value or 0) - (tests[0].value or 0), abs=1e-9)


def test_as_many_images_are_tested_as_the_page_says(tmp_path):
    cell = TABLE5.grid("demo")[0]
    assert len(build_corpus(configurations(cell, tmp_path)["base"]).test.lengths) == cell["measures"]["images"] == 20


def test_the_papers_figures_stand_beside_those_of_the_same_images(made):
    mnist = [({**cell, "corpus": "mnist"}, result) for cell, result in made]
    told = {(row.name, row.settings["model"]): row.document for row in TABLE5.rows(mnist)}
    assert told[BITS, "PixelCNN"] == 0.17
    assert told["training bits per dimension", "Gated PixelCNN with E-ARM"] == 0.10
    assert all(row.document is None for row in TABLE5.rows(made))
    both = TABLE5.rows([*mnist, *(({**cell, "corpus": "cifar-10"}, result) for cell, result in made)])
    theirs = {row.settings["corpus"]: row.document for row in both
              if row.name == BITS and row.settings["model"] == "PixelCNN"}  # fmt: skip
    assert theirs == {"mnist": 0.17, "cifar-10": 3.14}
    gains = {row.settings["corpus"]: row.document for row in both
             if row.name == GAIN and row.settings["model"] == "Gated PixelCNN"}  # fmt: skip
    assert gains == {"mnist": -0.02, "cifar-10": -0.06}
    assert {cell["corpus"] for cell in TABLE5.grid("paper")} == {"mnist", "cifar-10"}


def test_both_recipes_read_the_same_runs(made):
    assert FIGURE1.grid("demo") == [cell for cell in TABLE5.grid("demo") if cell["seed"] == 0]
    assert FIGURE1.runs == TABLE5.runs


def test_sheets_are_pictures(made):
    rows = FIGURE1.rows(made)
    assert len(rows) == 8
    assert all(base64.b64decode(row.picture or "").startswith(b"\x89PNG") for row in rows)
