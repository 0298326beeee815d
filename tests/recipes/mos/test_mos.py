"""The recipes of the mixture of softmaxes: options that exist, equal sizes, and figures worked out by hand."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from ebar.build.train import build_model
from ebar.config.reader import read_tree
from ebar.config.train import MANUAL, TrainConfig
from ebar.evaluation.blocks import BLOCKS
from ebar.evaluation.cache_pointer import CachePointer
from ebar.recipes import SCALES, find_recipe
from ebar.recipes.claims import REPRODUCED
from ebar.recipes.grid import Grid
from ebar.recipes.mos import cases, dialogue, plain, tables
from ebar.recipes.mos.measures import DYNAMIC, PLAIN, mean_over_blocks, ranked
from ebar.recipes.mos.words import GRID, MOC, MOS, MOS_SETTINGS, NGRAM, PTB, SOFTMAX, SPREAD, WT2
from ebar.recipes.recipe import Cell, Result
from ebar.recipes.render import findings
from ebar.recipes.rows import chosen
from ebar.types import Space

GRIDS: dict[str, Callable[[str], list[Cell]]] = {
    "words": GRID,
    "a3": plain.TABLE_A3.grid,
    "a4": dialogue.GRID,
    "a12": plain.TABLE_A12.grid,
}
SHARED = ("a1", "a2", "a5", "a6", "a7", "a11", "a14")


def read(tree: Mapping[str, Any]) -> TrainConfig:
    return read_tree(dict(tree), MANUAL, TrainConfig)


def size_of(config: TrainConfig, vocabulary: int) -> int:
    space = Space(vocabulary, 8, vocabulary - 1 if config.data.kind == "parallel" else None)
    shape = {"source_vocabulary": vocabulary} if config.data.kind == "parallel" else None
    return sum(parameter.numel() for parameter in build_model(config, space, shape).parameters())


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_has_options_that_exist(name: str, scale: str) -> None:
    for cell in GRIDS[name](scale):
        tree, measures = cell["configuration"], cell["measures"]
        read(tree)
        if tuned := measures.get("finetune"):
            optimiser = {"kind": "asgd", **tuned["optimiser"]}
            read({**tree, "optimiser": optimiser, "training": {**tree["training"], **tuned["training"]}})
            CachePointer(**measures["cache"])


def test_tables_of_the_same_runs_name_one_folder() -> None:
    recipes = [find_recipe(f"mos/table_{name}") for name in SHARED] + [find_recipe("mos/figure_a1")]
    assert len({recipe.runs for recipe in recipes}) == 1
    for scale in SCALES:
        known = GRID(scale) + SPREAD(scale)
        assert all(cell in known for recipe in recipes for cell in recipe.grid(scale))


@pytest.mark.parametrize(("grid", "place"), [(GRID, PTB), (GRID, WT2), (SPREAD, PTB)])
def test_models_that_are_compared_have_as_many_parameters(grid: Grid, place: str) -> None:
    cells = [cell for cell in grid("cpu") if cell["seed"] == 0 and cell["place"] == place]
    vocabulary = cells[0]["configuration"]["data"]["vocabulary"]
    sizes = {
        (cell["model"], cell["components"]): size_of(read(cell["configuration"]), vocabulary)
        for cell in cells
        if cell["model"] in (SOFTMAX, MOS, MOC)
    }
    assert len(sizes) >= 2
    assert max(sizes.values()) < 1.005 * min(sizes.values()), sizes


@pytest.mark.parametrize(("name", "vocabulary"), [("a3", 5000), ("a4", 2000), ("a12", 27)])
def test_so_have_those_of_the_other_tables(name: str, vocabulary: int) -> None:
    cells = [cell for cell in GRIDS[name]("cpu") if cell["seed"] == 0]
    sizes = {cell["model"]: size_of(read(cell["configuration"]), vocabulary) for cell in cells}
    assert max(sizes.values()) < 1.02 * min(sizes.values()), sizes


def test_character_models_of_scale_paper_have_the_parameters_of_table_a12() -> None:
    cells = [cell for cell in plain.TABLE_A12.grid("paper") if cell["seed"] == 0]
    wanted = (8.42, 8.45, 8.45, 8.43, 8.43)  # millions
    for cell, millions in zip(cells, wanted, strict=True):
        assert size_of(read(cell["configuration"]), 27) == pytest.approx(millions * 1e6, rel=4e-3), cell["model"]


def test_the_mean_over_blocks_of_a_text() -> None:
    """The first half of the blocks has mean 1, the second 3: Student's t of 29 degrees times √(30/29)/√30."""
    costs = torch.cat([torch.full((60,), 1.0), torch.full((60,), 3.0)])
    found = mean_over_blocks(costs)
    assert BLOCKS == 30
    assert found.value == pytest.approx(2.0)
    assert found.high - found.value == pytest.approx(2.04523 / math.sqrt(29), rel=1e-5)


def test_ranks_and_shares_of_a_matrix_with_known_singular_values() -> None:
    found = ranked(torch.diag(torch.tensor([4.0, 2.0, 1e-3, 0.0], dtype=torch.float64)))
    assert (found["rank"], found["full"], found["above"]) == (3, 4, 2)
    below = dict(map(tuple, found["below"]))
    assert below[1.0] == 1.0
    assert [share for threshold, share in below.items() if 1e-3 < threshold < 0.4] == [0.5] * 10


def made_up(cell: Cell) -> Result:
    """A softmax costs log 100 nats and each further seed adds log 1.01; other models cost less by their place."""
    models = [SOFTMAX, MOS, MOC]
    cost = math.log(100) + cell["seed"] * math.log(1.01)
    cost -= 0.1 * (models.index(cell["model"]) if cell["model"] in models else 0) + cell["components"] / 1000
    interval = {"value": cost, "low": cost - 0.01, "high": cost + 0.01, "effective_sample_size": 30.0}
    ratio = {"value": 0.9, "low": 0.89, "high": 0.91, "effective_sample_size": 30.0}
    plain_cost, dynamic = {"test": interval, "ratio": None}, {"test": interval, "ratio": ratio}
    own = {
        "rank": 50 if cell["model"] == SOFTMAX else 4000, "full": 4000, "contexts": 4000, "words": 4000,
        "above": 10 * cell["components"] + cell["seed"], "below": [[0.1, 0.5], [1.0, 1.0]],
    }  # fmt: skip
    return cell, {
        "parameters": 1000, "evaluations": {PLAIN: plain_cost, DYNAMIC: dynamic}, "rank": {"test": own},
        "bound": None if cell["model"] == NGRAM else 50, "divergence": {"test": interval}, "steps": [],
    }  # fmt: skip


def test_perplexities_are_paired_by_seed_and_stand_beside_the_papers() -> None:
    rows = tables.TABLE_A1.rows([made_up(cell) for cell in tables.TABLE_A1.grid("cpu")])
    (against,) = chosen(rows, tables.AGAINST, {"evaluation": PLAIN})
    wanted = math.exp(-0.1 - 4 / 1000)  # five components to one
    assert (against.value, against.low, against.high) == pytest.approx((wanted,) * 3)
    (ratio,) = chosen(rows, tables.RATIO, {"model": SOFTMAX, "evaluation": DYNAMIC})
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.9, 0.89, 0.91))  # blocks: seeds are all alike
    assert ratio.over == "3 seeds and the blocks of the test text that they share"
    assert findings(tables.TABLE_A1, rows)[0].verdict == REPRODUCED
    told = {(row.settings["model"], row.settings["evaluation"]): row.document for row in rows
            if row.name == "perplexity, test"}  # fmt: skip
    assert told == {
        (SOFTMAX, PLAIN): 58.8, (SOFTMAX, DYNAMIC): 51.1, (MOS, PLAIN): 55.97, (MOS, DYNAMIC): 47.69,
    }  # fmt: skip


def test_components_are_compared_with_the_next_fewer() -> None:
    rows = tables.TABLE_A7.rows([made_up(cell) for cell in tables.TABLE_A7.grid("cpu")])
    more = {row.settings["components"]: row.value for row in rows if row.name == tables.MORE}
    assert more == {5: 30.0, 10: 50.0}
    assert {row.value for row in rows if row.name == tables.SHORT} == {0.0}
    assert all(found.verdict == REPRODUCED for found in findings(tables.TABLE_A7, rows))


def test_ranks_are_held_against_the_bound() -> None:
    rows = tables.TABLE_A6.rows([made_up(cell) for cell in tables.TABLE_A6.grid("cpu")])
    past = {row.settings["model"]: row.value for row in rows if row.name == tables.PAST}
    assert past == {SOFTMAX: 0, MOS: 3950, MOC: 3950, MOS_SETTINGS: 3950}


def test_cases_are_the_steps_on_which_mixtures_differ_most_either_way() -> None:
    likeliest = [["a", 0.5], ["\n", 0.25]]

    def steps(*logs: float) -> list[dict[str, Any]]:
        return [{"context": f"c{n}\n", "next": "b", "log_prob": log, "likeliest": likeliest}
                for n, log in enumerate(logs)]  # fmt: skip

    results: list[Result] = [
        ({"seed": 0, "model": MOS}, {"steps": steps(-1.0, -2.0, -3.0)}),
        ({"seed": 0, "model": MOC}, {"steps": steps(-2.0, -2.5, -1.0)}),
        ({"seed": 1, "model": MOS}, {"steps": steps(-1.0, -1.0, -1.0)}),
        ({"seed": 1, "model": MOC}, {"steps": steps(-2.0, -2.0, -2.0)}),
    ]
    rows = cases.cases(results)
    first = {row.settings["what"]: row for row in rows if row.name == "MoS better, 1"}
    assert first["context"].settings["text"] == "c0<eos>"
    assert first["next word"].value == 1.0
    assert first["MoC, likeliest"].settings["text"] == "a 0.50, <eos> 0.25"
    (worst,) = [row for row in rows if row.name == "MoC better, 1" and row.settings["what"] == "next word"]
    assert worst.value == -2.0
    share, gain = cases.all_steps(results)
    assert share.value == pytest.approx((2 / 3 + 1) / 2)
    assert gain.value == pytest.approx((0.5 / 3 - 1) / 2)


def test_a_dialogue_has_each_source_once_with_all_its_references(tmp_path: Any) -> None:
    result = dialogue.run_cell(dialogue.GRID("demo")[0], tmp_path)
    assert set(result["bleu"]) == {"1", "2", "3", "4"}
    rows = dialogue.TABLE_A4.rows([(cell, result) for cell in dialogue.GRID("demo")])
    told = {(row.name, row.settings["model"]): row.document for row in rows}
    assert told["BLEU-1, precision", dialogue.SOFTMAX] == 24.9
    assert told["BLEU-4, recall", dialogue.SOFTMAX] == 11.1


def test_mixtures_in_a_dialogue_are_compared_sentence_by_sentence() -> None:
    """By hand: 0.5 and 1.5 nats less on sentences of 2 and 3 tokens."""
    costs = {dialogue.SOFTMAX: [4.0, 6.0], dialogue.MOC: [4.0, 6.0], dialogue.MOS: [3.5, 4.5]}
    results: list[Any] = [({"model": model}, {"costs": own, "tokens": [2, 3]}) for model, own in costs.items()]
    found = {row.settings["model"]: row for row in dialogue.compared(results)}
    assert found[dialogue.MOS].value == pytest.approx(-2 / 5)
    # Residuals of −0.5 + 0.8 and −1.5 + 1.2; Student's 0.975 quantile of one degree is 12.7062.
    assert (found[dialogue.MOS].high or 0) == pytest.approx(-0.4 + 12.7062 * math.sqrt(2 * 0.18) / 5, rel=1e-5)
    assert found[dialogue.MOC].value == 0.0
    assert found[dialogue.MOS].document == pytest.approx(math.log(32.727 / 34.657), abs=5e-5)
