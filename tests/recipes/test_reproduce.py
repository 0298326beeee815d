"""A recipe's grid is run resumably, and its result says how to have it again."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebar.cli import main
from ebar.errors import UserError
from ebar.recipes import RECIPES, SCALES, find_recipe
from ebar.recipes.layout import list_of_figures, markdown
from ebar.recipes.recipe import Cell, Recipe, Result, Row
from ebar.recipes.render import row_from
from ebar.recipes.reproduce import elapsed
from ebar.recipes.reproduce import reproduce as run
from ebar.store.writing import to_json
from tests.store.disk import Dead, failing


class Squares:
    """The parts of a recipe that counts its runs, and fails where it should."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.folders: list[Path] = []
        self.fails_at: int | None = None
        self.error: BaseException = KeyboardInterrupt()

    def grid(self, scale: str) -> list[Cell]:
        return [{"seed": seed, "scale": scale} for seed in range(4)]

    def run(self, cell: Cell, folder: Path) -> dict[str, Any]:
        if cell["seed"] == self.fails_at:
            (folder / "half").write_text("done")
            raise self.error
        self.ran.append(cell["seed"])
        self.folders.append(folder)
        return {"square": cell["seed"] ** 2}

    def figures(self, results: Sequence[Result]) -> list[Row]:
        total = sum(result["square"] for _, result in results)
        return [
            Row(name="total", settings={"of": len(results)}, value=float(total), low=None, high=None, document=14.0)
        ]

    def picture(self, rows: Sequence[Row], path: Path) -> None:
        path.write_text("<svg/>")

    def recipe(self) -> Recipe:
        return Recipe(
            title="Squares", source="a test", grid=self.grid, run=self.run, figures=[self.figures],
            picture=self.picture,
        )  # fmt: skip


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> Squares:
    squares = Squares()
    monkeypatch.setitem(RECIPES, "spine/squares", squares.recipe())
    return squares


def call(
    tmp_path: Path, *, fresh: bool = False, scale: str = "demo", workers: int = 1, backend: str = "joblib"
) -> Path:
    return run(
        "spine/squares", scale=scale, output=tmp_path / "results", work=tmp_path / "work", workers=workers, fresh=fresh,
        command="ebar reproduce spine/squares", backend=backend,
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
    assert record["backend"] == "joblib"
    assert {"command", "scale", "commit", "wall_seconds", "elapsed_seconds", "title", "source"} <= set(record)
    assert record["cells"] == squares.grid("demo")  # what was run, for whoever reads it when the recipe has changed


def test_a_run_has_an_absolute_folder(squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call(Path("here"))
    assert squares.folders
    assert all(folder.is_relative_to(tmp_path / "here" / "work") for folder in squares.folders)


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


def test_what_overlaps_has_elapsed_once_and_pauses_do_not_count() -> None:
    assert elapsed([[0.0, 10.0], [5.0, 12.0], [6.0, 7.0], [20.0, 21.0]]) == 13
    assert elapsed([]) == 0


def test_the_time_of_an_interrupted_run_counts_and_the_pause_does_not(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 10))  # each look at the clock is ten seconds after the last one
    monkeypatch.setattr("ebar.recipes.reproduce.time", SimpleNamespace(time=lambda: float(next(now))))
    squares.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path)
    squares.fails_at = None
    record = json.loads(call(tmp_path).read_text())
    assert record["elapsed_seconds"] == 50  # four runs and the one that was interrupted
    assert " s in all, 50 s elapsed" in next((tmp_path / "results").rglob("*.md")).read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_is_named_and_loses_no_other(squares: Squares, tmp_path: Path, workers: int) -> None:
    squares.fails_at, squares.error = 1, UserError("Choose another seed.")
    with pytest.raises(UserError, match=r'run \{"seed": 1, "scale": "demo"\} of spine/squares failed.*Choose another'):
        call(tmp_path, workers=workers)
    folder = tmp_path / "work" / "spine" / "squares.demo"
    assert len(list(folder.glob("*/result.json"))) == 3
    assert [path.name for path in folder.glob("*/work/*")] == ["half"]  # only what failed still has its files
    squares.error = ZeroDivisionError("by nought")
    with pytest.raises(RuntimeError, match=r'"seed": 1.*ZeroDivisionError: by nought') as caught:
        call(tmp_path, workers=workers)
    assert "in run" in caught.value.__notes__[0]  # the trace, for whoever mends the recipe
    squares.fails_at, squares.ran = None, []
    assert json.loads(call(tmp_path).read_text())["rows"][0]["value"] == 14
    assert squares.ran == [1]
    assert not list(folder.glob("*/work"))


def test_a_result_of_other_code_does_not_stand_in_a_table(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(tmp_path)
    monkeypatch.setattr("ebar.recipes.reproduce.source_fingerprint", lambda: "one byte of ebar was changed")
    call(tmp_path)
    assert squares.ran == [0, 1, 2, 3] * 2
    (tmp_path / "plugin_of_a_test.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EBAR_PLUGINS", "plugin_of_a_test")
    call(tmp_path)
    assert squares.ran == [0, 1, 2, 3] * 3
    call(tmp_path)
    assert squares.ran == [0, 1, 2, 3] * 3


def test_a_recipe_killed_at_any_change_of_the_disk_ends_as_the_one_that_never_was(
    squares: Squares, tmp_path: Path
) -> None:
    monkey = squares.grid
    squares.grid = lambda scale: monkey(scale)[:2]  # type: ignore[method-assign]
    with failing() as disk:
        whole = json.loads(call(tmp_path / "whole").read_text())["rows"]
    for at in range(1, disk.count + 1):
        with pytest.raises(Dead), failing(at):
            call(tmp_path / str(at))
        assert json.loads(call(tmp_path / str(at)).read_text())["rows"] == whole, at


def test_ray_gives_the_same_result(squares: Squares, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    ours = json.loads(call(tmp_path / "one").read_text())
    rays = json.loads(call(tmp_path / "two", workers=2, backend="ray").read_text())
    assert rays["backend"] == "ray"
    assert rays["rows"] == ours["rows"]
    assert squares.ran == [0, 1, 2, 3]  # those of `ours`: Ray's ran elsewhere
    assert not list((tmp_path / "two" / "work").rglob("*ray*"))


def test_a_backend_that_is_missing_or_unknown_is_one_sentence(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'ebar\[cluster\]'"):
        call(tmp_path, workers=2, backend="ray")
    with pytest.raises(UserError, match="joblib, ray"):
        call(tmp_path, backend="dask")


def test_the_page_has_ours_and_the_papers_beside_it(squares: Squares, tmp_path: Path) -> None:
    text = call(tmp_path).with_suffix(".md").read_text()
    assert "| figure | of | ours | paper |\n| --- | --- | --- | --- |\n| total | 4 | 14 | 14 |\n" in text
    assert "![Squares](squares.demo.svg)" in text
    assert "`ebar reproduce spine/squares`" in text


def test_a_list_of_figures_has_no_empty_columns() -> None:
    rows = [
        Row(name="a|b", settings={"ft": "1001"}, value=0.51234567, low=0.5, high=0.53, document="0.5 to 0.6"),
        Row(name="c", settings={"n": 2.0}, value=None, low=None, high=None, warning="too\nfew"),
        row_from(json.loads(to_json(asdict(Row(name="d", value=math.inf, low=1.0, high=math.inf))))),
    ]
    laid = list_of_figures(rows)
    assert laid.header == ["figure", "ft", "n", "ours", "interval", "paper", "warning"]
    assert laid.cells == [
        ["a|b", "1001", "", "0.5123", "0.5 … 0.53", "0.5 to 0.6", ""],
        ["c", "", "2", "–", "", "", "too\nfew"],
        ["d", "", "", "inf", "1 … inf", "", ""],
    ]
    text = "\n".join(markdown(list_of_figures(rows, "IWSLT14")))
    assert "| a\\|b | 1001 |" in text
    assert "| too few |" in text
    assert "| paper (IWSLT14) |" in text
    spoken = list_of_figures([Row(name="e", value=1.0, low=0.5, high=1.5, over="3 seeds")])
    assert spoken.header == ["figure", "ours", "interval", "over"]
    assert spoken.cells == [["e", "1", "0.5 … 1.5", "3 seeds"]]


def test_the_listing_names_the_folder_it_looked_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--output", str(tmp_path)]) == 0
    assert f"under {tmp_path}:" in capsys.readouterr().out


def test_another_scale_is_another_result(squares: Squares, tmp_path: Path) -> None:
    assert call(tmp_path, scale="cpu") != call(tmp_path, scale="demo")
    with pytest.raises(UserError, match="demo, cpu, paper"):
        call(tmp_path, scale="huge")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_has_a_grid_of_distinct_seeded_cells_at_every_scale(name: str, scale: str) -> None:
    recipe = find_recipe(name)
    assert isinstance(recipe, Recipe)
    grid = [json.dumps(cell, sort_keys=True) for cell in recipe.grid(scale)]
    assert len(set(grid)) == len(grid) > 0
    assert all("seed" in cell for cell in recipe.grid(scale))


@pytest.fixture(scope="module")
def shared_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables read off the same runs find those of the table before."""
    return tmp_path_factory.mktemp("work")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_at_scale_demo_on_two_workers(
    name: str, tmp_path: Path, shared_work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output", str(tmp_path / "results"), "--work", str(shared_work), "--workers", "2", "--json"]
    assert main(["reproduce", name, "--scale", "demo", *words]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["rows"]
    for row in record["rows"]:
        if row["low"] is not None:
            assert float(row["low"]) <= float(row["value"]) <= float(row["high"]), row
            assert row["over"], row  # seeds, test items, both, draws
    assert (tmp_path / "results" / f"{name}.demo.svg").read_text().startswith("<?xml")


def test_samplers_come_near_the_ideal_and_nearer_with_more_draws(tmp_path: Path) -> None:
    recipe = find_recipe("spine/samplers")
    for cell in recipe.grid("demo"):
        if cell["seed"] == 0 and cell["n"] == 1000:
            few = recipe.run({**cell, "n": 100}, Path())["total_variation"]
            # From n = 100 to 1,000 the distance falls by √10 on average. The seed is fixed: no false alarm.
            assert recipe.run(cell, Path())["total_variation"] < few, cell["sampler"]
