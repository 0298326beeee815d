"""A recipe's grid is run resumably, and its result says how to have it again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ebar.cli import main
from ebar.errors import UserError
from ebar.recipes import RECIPES, SCALES, reproduce
from ebar.recipes.recipe import Cell, Recipe, Row
from ebar.recipes.reproduce import load
from ebar.recipes.reproduce import reproduce as run


class Squares:
    """Counts its runs, and fails when told to."""

    title = "Squares"
    source = "a test"

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.fails_at: int | None = None

    def grid(self, scale: str) -> list[Cell]:
        return [{"seed": seed, "scale": scale} for seed in range(4)]

    def run(self, cell: Cell) -> dict[str, Any]:
        if cell["seed"] == self.fails_at:
            raise KeyboardInterrupt
        self.ran.append(cell["seed"])
        return {"square": cell["seed"] ** 2}

    def rows(self, scale: str, results: Sequence[tuple[Cell, dict[str, Any]]]) -> list[Row]:
        total = sum(result["square"] for _, result in results)
        return [
            Row(name="total", settings={"of": len(results)}, value=float(total), low=None, high=None, document=14.0)
        ]

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        path.write_text("<svg/>")


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> Squares:
    recipe = Squares()
    monkeypatch.setattr(reproduce, "load", lambda name: recipe)
    return recipe


def call(tmp_path: Path, *, fresh: bool = False, scale: str = "demo") -> Path:
    return run(
        "spine/squares", scale=scale, output=tmp_path / "results", work=tmp_path / "work", workers=1, fresh=fresh,
        command="ebar reproduce spine/squares",
    )  # fmt: skip


def test_the_result_says_how_to_have_it_again(squares: Squares, tmp_path: Path) -> None:
    path = call(tmp_path)
    record = json.loads(path.read_text())
    assert path == tmp_path / "results" / "spine" / "squares.demo.json"
    assert path.with_suffix(".svg").exists()
    assert record["rows"] == [
        {
            "name": "total",
            "settings": {"of": 4},
            "value": 14.0,
            "low": None,
            "high": None,
            "document": 14.0,
            "warning": None,
        }
    ]
    assert record["seeds"] == [0, 1, 2, 3]
    assert {"torch", "python", "ebar"} <= set(record["versions"])
    assert {"command", "scale", "commit", "wall_seconds", "title", "source"} <= set(record)


def test_what_was_interrupted_goes_on_where_it_stopped(squares: Squares, tmp_path: Path) -> None:
    squares.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path)
    assert squares.ran == [0, 1]
    assert not (tmp_path / "results").exists()
    squares.fails_at = None
    whole = json.loads(call(tmp_path).read_text())
    assert squares.ran == [0, 1, 2, 3]
    assert whole["rows"][0]["value"] == 14
    call(tmp_path)
    assert squares.ran == [0, 1, 2, 3]
    call(tmp_path, fresh=True)
    assert squares.ran == [0, 1, 2, 3, 0, 1, 2, 3]


def test_another_scale_is_another_result(squares: Squares, tmp_path: Path) -> None:
    assert call(tmp_path, scale="cpu") != call(tmp_path, scale="demo")
    with pytest.raises(UserError, match="demo, cpu, paper"):
        call(tmp_path, scale="huge")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_has_a_grid_of_distinct_seeded_cells_at_every_scale(name: str, scale: str) -> None:
    recipe = load(name)
    assert isinstance(recipe, Recipe)
    grid = [json.dumps(cell, sort_keys=True) for cell in recipe.grid(scale)]
    assert len(set(grid)) == len(grid) > 0
    assert all("seed" in cell for cell in recipe.grid(scale))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_at_scale_demo_on_two_workers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output", str(tmp_path / "results"), "--work", str(tmp_path / "work"), "--workers", "2", "--json"]
    assert main(["reproduce", name, "--scale", "demo", *words]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in record["rows"])
    assert (tmp_path / "results" / f"{name}.demo.svg").read_text().startswith("<?xml")


def test_samplers_come_near_the_ideal_and_nearer_with_more_draws(tmp_path: Path) -> None:
    recipe = load("spine/samplers")
    for cell in recipe.grid("demo"):
        if cell["seed"] == 0 and cell["n"] == 1000:
            few = recipe.run({**cell, "n": 100})["total_variation"]
            # From n = 100 to 1,000 the distance falls by √10 on average. The seed is fixed: no false alarm.
            assert recipe.run(cell)["total_variation"] < few, cell["sampler"]
