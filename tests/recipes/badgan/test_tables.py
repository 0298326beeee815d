"""The tables of the bad GAN: which runs they ask for, and how they are read, by hand."""

from collections import Counter
from typing import Any

import pytest

from ebar.config.classify import MANUAL, ClassifyConfig
from ebar.config.reader import read_tree
from ebar.recipes.badgan.cells import ENT, FM, LD, MNIST, PT, SUPERVISED, VI
from ebar.recipes.badgan.tables import (
    BY_EPOCH,
    CHOSEN,
    ERROR,
    FIGURE_C5,
    FIGURE_C6,
    TABLE_C1,
    TABLE_C2,
    chosen_method,
    curves,
    percent,
)
from ebar.recipes.recipe import Recipe

ALL = [TABLE_C1, TABLE_C2, FIGURE_C5, FIGURE_C6]


def test_the_runs_at_scale_cpu_are_those_that_are_asked_for() -> None:
    def counted(*recipes: Recipe) -> Counter[tuple[str, int | None]]:
        different = {repr(cell): cell for recipe in recipes for cell in recipe.grid("cpu")}.values()
        return Counter((cell["method"], cell["centile"]) for cell in different)

    assert counted(TABLE_C1) == {(SUPERVISED, None): 5, (FM, None): 5, (VI, None): 3, (PT, None): 3, (LD, 10): 3}
    assert counted(TABLE_C2, FIGURE_C5, FIGURE_C6) == {
        (FM, None): 5, (VI, None): 3, (PT, None): 1, (LD, 10): 3, (ENT, 10): 3, (LD, 2): 3, (LD, 20): 3, (LD, 100): 3,
    }  # fmt: skip
    epochs = [{cell["configuration"]["training"]["epochs"] for cell in recipe.grid("cpu")} for recipe in ALL]
    assert epochs == [{30}, {15}, {15}, {15}]
    assert {recipe.runs for recipe in ALL} == {"badgan/few_labels"}  # a run serves all of them
    first = [cell["method"] for cell in TABLE_C1.grid("cpu")]
    assert first.index(LD) == len(first) - 3  # those without a density in training come first
    thresholds = {cell["centile"]: cell["configuration"]["terms"]["low_density_centile"]
                  for cell in TABLE_C2.grid("cpu") if cell["method"] == LD}  # fmt: skip
    assert thresholds == {2: 2.0, 10: 10.0, 20: 20.0, 100: 100.0}


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.title)
@pytest.mark.parametrize("scale", ["demo", "cpu", "paper"])
def test_every_cell_is_a_configuration_of_the_command(recipe: Recipe, scale: str) -> None:
    kinds = {str({**cell["configuration"], "seed": 0}): cell for cell in recipe.grid(scale)}
    for cell in kinds.values():
        config = read_tree(cell["configuration"], MANUAL, ClassifyConfig)
        assert config.terms.supervised == (cell["method"] == SUPERVISED)
        assert bool(config.terms.low_density) == ("LD" in cell["method"])
        assert bool(config.terms.conditional_entropy) == ("Ent" in cell["method"])
        assert bool(config.terms.pull_away) == ("PT" in cell["method"])
        assert bool(config.terms.variational) == ("VI" in cell["method"])
        assert (cell["density"] is not None) == (cell["method"] == FM or "LD" in cell["method"])


def run(method: str, seed: int, validation: float, test: float) -> tuple[dict[str, Any], dict[str, Any]]:
    def share(value: float) -> dict[str, Any]:
        return {"value": value, "low": value / 2, "high": 2 * value, "effective_sample_size": 100.0}

    cell = {"corpus": MNIST, "method": method, "centile": None, "seed": seed}
    curve = {"error": [(1, 2 * validation), (2, validation)]}
    return cell, {"best": {"error": share(test)}, "validation": {"error": share(validation)}, "curve": curve}


def test_the_method_is_chosen_by_validation_errors_and_judged_by_test_errors() -> None:
    results = [run(FM, 0, 0.03, 0.01), run(FM, 1, 0.05, 0.01), run(VI, 0, 0.02, 0.06), run(VI, 1, 0.04, 0.08)]
    (row,) = chosen_method(results)
    assert row.name == CHOSEN
    assert row.settings["method"] == VI
    assert row.value == pytest.approx(7.0)
    assert row.low == pytest.approx(max(0, 7 - 12.7062 * 2**0.5 / 2**0.5), abs=1e-3)


def test_curves_are_means_over_the_seeds_that_got_so_far() -> None:
    results = [run(FM, 0, 0.03, 0.01), run(FM, 1, 0.05, 0.01)]
    results[1][1]["curve"]["error"].pop()
    rows = curves((BY_EPOCH, "error"))(results)
    assert [row.settings["epoch"] for row in rows] == [1]
    assert rows[0].value == pytest.approx(8.0)


def test_shares_are_read_as_percentages_and_what_is_not_there_is_none() -> None:
    _, result = run(FM, 0, 0.03, 0.01)
    found = percent("best.error")(result)
    assert found is not None
    assert (found.value, found.low, found.high) == (1.0, 0.5, 2.0)
    assert percent("best.fake_share")(result) is None
    assert ERROR in {figure.name for part in (TABLE_C1.figures, TABLE_C2.figures) for one in part  # type: ignore[union-attr]
                     for figure in getattr(one, "of", ())}  # fmt: skip
