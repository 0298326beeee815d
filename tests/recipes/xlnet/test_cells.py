"""What the runs of XLNet's tables share and what they do not, and what their figures are of."""

from pathlib import Path
from typing import Any

import pytest

from ebar.recipes.recipe import Row
from ebar.recipes.xlnet import cells
from ebar.recipes.xlnet.models import LEFT, SCRATCH, SENTENCES, XLNET
from ebar.recipes.xlnet.tables import LABELS, TABLE4_6, labelled_runs
from ebar.training.train import History


@pytest.mark.parametrize("scale", ["demo", "cpu", "paper"])
def test_pretrainings_share_no_seed_of_fine_tuning_and_networks_share_them_all(scale: str) -> None:
    """Else networks that are not pretrained would be the same runs again, and their interval nothing."""
    seeds: dict[str, list[int]] = {XLNET: [], SCRATCH: []}
    for cell in LABELS.grid(scale):
        for settings in list(cell["tasks"].values())[:1]:
            seeds[cell["model"]] += cells.seeds_of(cell, settings)
    assert len(set(seeds[XLNET])) == len(seeds[XLNET])
    assert seeds[XLNET] == seeds[SCRATCH]
    if scale == "cpu":
        assert len(seeds[XLNET]) >= 5


def test_left_to_right_is_not_right_to_left_as_well() -> None:
    data = {cell["model"]: cell["pretraining"]["data"] for cell in TABLE4_6.grid("cpu")}
    assert data[LEFT]["bidirectional"] is False
    assert data[XLNET].get("bidirectional", True)


def test_the_cost_of_pretraining_is_without_that_of_next_sentences(tmp_path: Path) -> None:
    cell = next(cell for cell in TABLE4_6.grid("demo") if cell["model"] == SENTENCES)
    found = cells._pretrained(cell, tmp_path)
    lines = [line for line in History.read(tmp_path / "pretrained") if "validation.loss" in line]
    assert found["loss"] == lines[-1]["validation.nll_per_target"]
    both = lines[-1]["validation.nll_per_target"] + lines[-1]["validation.next_sentence_nll"]
    assert lines[-1]["validation.loss"] == pytest.approx(both)


def test_a_single_run_keeps_its_interval_and_says_over_what_it_is() -> None:
    def task(seeds: int) -> dict[str, Any]:
        return {"seeds": seeds, "measures": ["accuracy"], "labels": [None]}

    cell = {"model": "m", "seed": 0, "tasks": {"one": task(1), "five": task(5)}}
    one = {"value": 0.5, "low": 0.4, "high": 0.6, "each": [0.5]}
    five: dict[str, Any] = {"value": 0.5, "low": 0.4, "high": 0.6, "each": [0.3, 0.4, 0.5, 0.6, 0.7]}
    result = {"tasks": {"one": {"all": {"accuracy": one}}, "five": {"all": {"accuracy": five}}}}
    found = [(own["task"], own["seed"], part["score"]) for own, part in cells.by_seed(cell, result)]
    assert found[0] == ("one", 0, one)
    assert found[1:] == [("five", seed, score) for seed, score in enumerate(five["each"])]
    rows = [Row(name="", settings={"task": name}, value=0.5, low=0.4, high=0.6) for name in ("one", "five, f1")]
    assert [labelled_runs(row, [cell]) for row in rows] == [
        "test examples, one run", "5 seeds of fine-tuning, one pretraining"
    ]  # fmt: skip
