"""Heads over 256 levels, at a small scale."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebar.build.train import build_corpus
from ebar.recipes.earm.images import BITS
from ebar.recipes.images.logistic_mixture import DIFFERENCE, LOGISTIC, PARAMETERS, RECIPE, SOFTMAX
from ebar.recipes.training import configuration
from ebar.store.writing import to_json


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, Any]]]:
    folder: Path = tmp_path_factory.mktemp("images")
    return [(cell, json.loads(to_json(RECIPE.run(cell, folder)))) for cell in RECIPE.grid("demo")]


def test_figures_are_of_both_heads_and_their_difference_is_paired(made: Any) -> None:
    rows = {(row.name, row.settings.get("head")): row for row in RECIPE.rows(made)}
    both = [rows[BITS, head].value or 0.0 for head in (SOFTMAX, LOGISTIC)]
    assert all(0 < value < 8.5 for value in both)
    paired = rows[DIFFERENCE, None]
    assert paired.value == pytest.approx(both[1] - both[0], abs=1e-6)
    assert paired.low is not None
    assert paired.low < (paired.value or 0.0)
    assert [rows[PARAMETERS, head].value for head in (SOFTMAX, LOGISTIC)] == [5 * 256, 5 * 30]  # of 4 features


def test_all_256_levels_are_read_and_as_many_images_tested_as_the_page_says(tmp_path: Path) -> None:
    cell = RECIPE.grid("demo")[0]
    corpus = build_corpus(configuration(cell["configuration"], tmp_path))
    assert corpus.space.vocabulary == 256
    assert len(corpus.test.lengths) == cell["measures"]["images"]
    assert int(corpus.test.tokens.max()) == 255


def test_every_table_can_be_laid_out(made: Any) -> None:
    rows = RECIPE.rows(made)
    for table in RECIPE.tables:  # type: ignore[union-attr]
        assert table(rows, "").cells
