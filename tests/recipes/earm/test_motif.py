"""The four models share what they are said to share, and the figures are those of the runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebar.build.gam import base_settings
from ebar.build.train import build_corpus, build_model
from ebar.config.reader import to_yaml
from ebar.objectives import OBJECTIVES
from ebar.objectives.scheduled_sampling import ScheduledSampling, chance_of_truth
from ebar.recipes.earm.motif import (
    COST,
    COST_DIFFERENCE,
    EARM,
    FAKES,
    MOTIF_DIFFERENCE,
    RECIPE,
    SCHEDULED,
    SIZES,
    STUDENT,
    R,
    twins_of,
)
from ebar.recipes.gam import data_efficiency
from ebar.recipes.gam.cells import configured
from ebar.recipes.recipe import Cell, Recipe
from ebar.store.writing import to_json
from ebar.training.optimisers import for_steps

RIVALS = (SCHEDULED, EARM, STUDENT)
Run = tuple[Cell, dict[str, Any], Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cell, folder = RECIPE.grid("demo")[0], tmp_path_factory.mktemp("cell")
    return cell, json.loads(to_json(RECIPE.run(cell, folder))), folder


def test_no_model_beats_the_entropy_and_all_have_learnt_something(run: Run) -> None:
    _, result, _ = run
    assert list(result["models"]) == [R, SCHEDULED, EARM, STUDENT]
    for name, model in result["models"].items():
        assert result["entropy"] < model["exact"]["value"] < 1.05, name  # 0.53; log 3 is 1.10 before any training
        assert 0 < model["motif_frequency"]["value"] < 1, name
    costs = [model["exact"]["value"] for model in result["models"].values()]
    assert len(set(costs)) == len(costs)
    assert max(costs) - min(costs) < 0.1
    assert all(0 < share <= 1 for share in result["effective_share"])


def test_branches_share_the_trunk_and_part_after_it(run: Run) -> None:
    cell, result, folder = run
    trunk = (folder / "trunk" / "metrics.jsonl").read_bytes()
    logs = {name: (folder / name / "metrics.jsonl").read_bytes() for name in ("gam/r", "scheduled_sampling", "earm")}
    assert trunk
    assert all(log.startswith(trunk) for log in logs.values())
    ends = {log[len(trunk) :] for log in logs.values()}
    assert len(ends) == 3
    assert {len(curve) for curve in result["validation"].values()} == {cell["configuration"]["base"]["epochs"]}


def test_the_journey_of_gam_begins_with_the_twin_r(run: Run) -> None:
    """It found r finished where it would have trained it, and its configuration is that of its own r."""
    cell, _, folder = run
    own = base_settings(configured(cell["configuration"]))
    assert (folder / "gam" / "r" / "config.yaml").read_text() == to_yaml(own)
    assert (folder / "gam" / "r" / "metrics.jsonl").read_bytes() != (folder / "trunk" / "metrics.jsonl").read_bytes()


def test_a_run_called_again_finds_everything_done(run: Run) -> None:
    cell, result, folder = run
    before = {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")}
    assert json.loads(to_json(RECIPE.run(cell, folder))) == result
    assert {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")} == before


def test_r_and_the_data_are_those_of_data_efficiency() -> None:
    theirs = {(cell["size"], cell["seed"]): cell["configuration"] for cell in data_efficiency.RECIPE.grid("cpu")
              if cell["recipe"] == "tuned"}  # fmt: skip
    ours = {(cell["size"], cell["seed"]): cell["configuration"] for cell in RECIPE.grid("cpu")}
    assert isinstance(RECIPE, Recipe)
    assert all(ours[key] == theirs[key] for key in ours.keys() & theirs.keys())
    assert {(500, 0), (500, 1), (500, 2)} <= ours.keys() & theirs.keys()


def test_fakes_are_enough_and_the_chance_of_truth_ends_at_its_least(tmp_path: Path) -> None:
    for scale in SIZES:
        for cell in RECIPE.grid(scale):
            base = cell["configuration"]["base"]
            assert cell["twins"][EARM]["draws"] * base["batch_size"] >= FAKES
            assert {twin["start_epoch"] for twin in cell["twins"].values()} == {base["epochs"] // 2}
    cell = RECIPE.grid("demo")[0]
    settings = base_settings(configured(cell["configuration"]))
    model = build_model(settings, build_corpus(settings).space)
    way = for_steps(twins_of(cell, settings)[SCHEDULED].objective.make(OBJECTIVES, model=model), 1000)
    assert isinstance(way, ScheduledSampling)
    chances = [chance_of_truth(step, way.decay, way.k, way.slope, way.floor) for step in (0, 500, 1000, 2000)]
    assert chances == pytest.approx([1.0, 0.9, 0.8, 0.8])


def made_up(scale: str) -> list[tuple[Cell, dict[str, Any]]]:
    """r costs 0.6 + seed/100, each rival a tenth more than the one before it; the motif the other way round."""
    results = []
    for cell in RECIPE.grid(scale):
        models = {
            name: {
                "exact": _told(0.6 + cell["seed"] / 100 + place / 10),
                "motif_frequency": _told(0.9 - cell["seed"] / 100 - place / 10),
                "mean_length": _told(30.0),
            }
            for place, name in enumerate((R, *RIVALS))
        }
        said = {STUDENT: ["λ is large", "λ is small"]} if cell["seed"] == 1 else {STUDENT: []}
        results.append((cell, {"entropy": 0.5, "models": models, "warnings": said, "effective_share": [0.4, 0.6]}))
    return results


def _told(value: float) -> dict[str, float]:
    return {"value": value, "low": value, "high": value, "effective_sample_size": 1.0}


@pytest.mark.parametrize("scale", SIZES)
def test_differences_are_paired_by_seed(scale: str, tmp_path: Path) -> None:
    rows = RECIPE.rows(made_up(scale))
    for sign, figure in ((1, COST_DIFFERENCE), (-1, MOTIF_DIFFERENCE)):
        paired = [row for row in rows if row.name == figure]
        assert len(paired) == 3 * len(SIZES[scale])
        for row in paired:
            wanted = sign * (1 + RIVALS.index(row.settings["model"])) / 10
            assert (row.value, row.low, row.high) == pytest.approx((wanted,) * 3)  # pairing leaves no spread
    size, seeds = next(iter(SIZES[scale].items()))
    own = {row.name: row for row in rows if row.settings == {"size": size, "model": STUDENT}}
    mean = 0.9 + (seeds - 1) / 200
    assert own[COST].value == pytest.approx(mean)
    assert own["CE/H"].value == pytest.approx(2 * mean)
    assert own[COST].warning == f"1 of {seeds} runs: λ is large (and 1 more)"
    RECIPE.plot(rows, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000
