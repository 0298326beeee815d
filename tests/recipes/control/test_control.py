"""Control's recipes at their smallest scale, and what their pages are made of."""

from dataclasses import replace
from pathlib import Path

import pytest

from ebar.config.control import ControlConfig
from ebar.journeys.control.report import TARGET
from ebar.journeys.control.tuning import Tuning
from ebar.recipes.control import tables, tuning
from ebar.recipes.control.tables import SMOLLM2, STORIES
from ebar.recipes.recipe import Recipe
from ebar.recipes.residual.configurations import path_of

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
pytest.importorskip("peft", reason="needs the extra ebar[hf]")


@pytest.mark.parametrize(("recipe", "cases"), [(STORIES, 2), (SMOLLM2, 1), (tuning.RECIPE, 2)])
@pytest.mark.parametrize(("scale", "seeds"), [("demo", 1), ("cpu", 1), ("paper", 3)])
def test_every_scale_has_options_that_exist(recipe: Recipe, cases: int, scale: str, seeds: int) -> None:
    grid = recipe.grid(scale)
    assert len(grid) == cases * seeds
    for cell in grid:
        ControlConfig(model="any", features=tuple(cell["terms"]), **cell["control"])
        Tuning(**cell["tuning"])


def test_the_models_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBAR_DATA", str(tmp_path))
    (tmp_path / "stories260k").mkdir()
    file = tmp_path / "stories260k" / "stories260K.bin"
    file.touch()
    for recipe in (STORIES, tuning.RECIPE):
        assert path_of(recipe.grid("cpu")[0]["model"]) == str(file)


def test_stories_at_the_smallest_scale(tmp_path: Path) -> None:
    assert isinstance(STORIES, Recipe)
    assert isinstance(SMOLLM2, Recipe)
    results = []
    for number, cell in enumerate(STORIES.grid("demo")):
        folder = tmp_path / str(number)
        folder.mkdir()
        results.append((cell, STORIES.run(cell, folder)))
    # Run again, every stage is read back.
    assert STORIES.run(results[0][0], tmp_path / "0")["tuned"] == results[0][1]["tuned"]
    rows = STORIES.rows(results)
    moments = {(row.settings["case"], row.settings["of"]): row for row in rows if row.name == tables.MOMENT}
    assert moments["pointwise", tables.STEERED].value == 1
    assert moments["pointwise", tables.AFTER].value == 1
    half = moments["half", tables.AFTER]
    assert half.low is not None
    assert half.high is not None
    assert half.low - 0.1 < 0.5 < half.high + 0.1
    assert half.settings["wanted"] == 0.5
    worth = {(row.settings["case"], row.settings["of"]): row.value for row in rows if row.name == tables.GAIN}
    ahead, plain = worth["pointwise", "looking ahead"], worth["pointwise", "the model"]
    assert ahead is not None
    assert plain is not None
    assert ahead > 2 * plain
    (scale,) = [row for row in rows if row.name == tables.LAMBDA]
    assert scale.settings["case"] == "half"
    curve = [row for row in rows if row.name == TARGET and row.settings["case"] == "pointwise"]
    assert [row.settings["step"] for row in curve] == [0, 3, 6]
    assert all(row.low is not None and row.low <= (row.value or 0) for row in curve)
    said = tables.notes(rows)
    assert said[0] == "pointwise: 1.0 was asked for, and the interval of p's moment holds it: 1.000 to 1.000."
    missed = tables.notes([replace(half, low=0.6, high=0.7)])
    assert missed[0].endswith("the interval of p's moment **does not hold it**: 0.600 to 0.700.")
    STORIES.plot(rows, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_both_ways_of_tuning_at_the_smallest_scale(tmp_path: Path) -> None:
    cell = tuning.RECIPE.grid("demo")[1]
    result = tuning.RECIPE.run(cell, tmp_path)
    assert set(result["ways"]) == {"policy_gradient", "distillation"}
    rows = tuning.RECIPE.rows([(cell, result)])
    moments = [row for row in rows if row.name == tuning.MOMENT]
    assert {row.settings["method"] for row in moments} == set(result["ways"])
    assert all(row.settings["wanted"] == 0.5 for row in moments)
    (said,) = tuning.notes(rows)
    near = min(moments, key=lambda row: abs((row.value or 0) - 0.5))
    assert str(near.settings["method"]) in said
    asked = {name: replace(row, value=0.5) for name, row in zip(("one", "other"), moments, strict=True)}
    rest = [row for row in rows if row.name != tuning.MOMENT]
    assert "0.500, within 0.05 of the 0.5" in tuning.notes([*asked.values(), *rest])[0]
    for table in tuning.RECIPE.tables if isinstance(tuning.RECIPE.tables, list) else []:
        assert table(rows, "").cells
