"""What the smaller tables of E-ARM make of finished runs, with numbers small enough to be worked out on paper."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.recipes import SCALES
from ebar.recipes.earm import (
    cases,
    figure2,
    recent,
    table1,
    table2,
    table7,
    table8,
    table9,
    table10,
    table11,
    translation_settings,
    without_ce,
)
from ebar.recipes.earm.language_modelling import build, task_of
from ebar.recipes.recipe import Cell, Row
from ebar.types import Clock, Objective, Sequences

READINGS = {
    "table7": table7, "table8": table8, "table9": table9, "table10": table10, "figure2": figure2, "cases": cases,
}  # fmt: skip


def estimate(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 1, "high": value + 1, "effective_sample_size": 50.0, "warning": None}


def branch(bleu: float, seed: int) -> dict[str, Any]:
    """Longer sentences score 1 and 2 less, resampling 0.5 less, each metric its own; a seed adds 0.1."""
    bleu += seed / 10
    return {
        "bleu": {"1": estimate(bleu - 3), "5": estimate(bleu)},
        "by_length": {
            "[0, 2)": estimate(bleu),
            "OfLength(low=2, high=3, sentences=5, score=7.0)": estimate(bleu - 1),
            "[3, ∞)": None if bleu < 20 else estimate(bleu - 2),
        },
        "overlap": {
            "ROUGE-1": estimate(2 * bleu), "ROUGE-2": estimate(bleu + 1), "ROUGE-L": estimate(bleu + 2),
            "meteor": estimate(bleu + 3),
        },
        "resampling": {"5": estimate(bleu - 0.5), "10": estimate(bleu - 0.25)},
        "curves": {"training": [[10, 5.0], [20, 3.0], [30, 2.0]], "validation": [[25, 4.0], [50, 3.0 + seed]]},
        "texts": ["one two", "six"],
    }  # fmt: skip


def results(cells: Sequence[Cell], gain: float = 1.0) -> list[tuple[Cell, dict[str, Any]]]:
    """Label smoothing adds 2 to BLEU, scheduled sampling 3; E-ARM `gain`, and half as much on the second seed."""
    base = {"base": 30.0, "label smoothing": 32.0, "scheduled sampling": 33.0}
    return [
        (
            cell,
            {
                "branches": {
                    "base": branch(base[cell["variant"]], cell["seed"]),
                    "earm": branch(base[cell["variant"]] + gain / (1 + cell["seed"]), cell["seed"]),
                },
                "exposure": {
                    "own": estimate(0.6 + cell["seed"] / 10), "gold": estimate(0.5 + cell["seed"] / 10), "tested": 80,
                },
                "sources": ["eins zwei", "fünf"],
                "references": ["one two", "five"],
            },
        )
        for cell in cells
    ]  # fmt: skip


def one(rows: Sequence[Row], name: str, **settings: Any) -> Any:
    (found,) = [row for row in rows if row.name == name and settings.items() <= row.settings.items()]
    return found


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("scale", SCALES)
def test_readings_need_no_run_that_table_1_has_not(name: str, scale: str) -> None:
    finished = {json.dumps(cell) for cell in table1.RECIPE.grid(scale)}
    recipe = READINGS[name].RECIPE
    assert {json.dumps(cell) for cell in recipe.grid(scale)} <= finished
    assert recipe.runs == table1.RECIPE.runs
    assert recipe.run is table1.RECIPE.run


def test_bleu_by_length_stands_beside_the_documents_bin_of_the_same_rank() -> None:
    rows = table7.figures(results(table7.cells("demo")))
    short = one(rows, "BLEU, beam 5", system="base", words="[0, 2)")
    assert short.value == pytest.approx(32.05)  # seeds: 32, 32.1
    assert short.document == 37.72
    assert one(rows, "BLEU, beam 5", system="base", words="[2, 3)").value == pytest.approx(31.05)
    long = one(rows, "BLEU, beam 5", system="scheduled sampling + E-ARM", words="[3, ∞)")
    assert long.value == pytest.approx(31.8)  # 33 + 1 − 2, 33.1 + 0.5 − 2
    assert long.document == 31.43
    paired = one(rows, "BLEU, beam 5, paired difference", words="all", system="E-ARM − base")
    assert paired.value == pytest.approx(0.75)
    # Student's t of one degree of freedom is 12.706; the deviation of 1 and ½ over √2 is ¼.
    assert paired.low == pytest.approx(0.75 - 12.7062 / 4, abs=1e-4)
    assert paired.document is None
    paired = one(rows, "BLEU, beam 5, paired difference", words="[3, ∞)",
                 system="scheduled sampling + E-ARM − scheduled sampling")  # fmt: skip
    assert paired.document == 0.35


def test_an_empty_bin_is_said_to_be_empty() -> None:
    # 50 less: no base reaches 20, below which there is no long sentence.
    found = [
        (cell, {**result, "branches": {name: branch(10.0, cell["seed"]) for name in ("base", "earm")}})
        for cell, result in results(table7.cells("demo"))
    ]
    rows = table7.figures(found)
    long = [row for row in rows if row.settings["words"] == "[3, ∞)"]
    assert {row.value for row in long} == {None}
    assert all(row.warning for row in long)


def test_exposure_bias_is_counted_from_one_half() -> None:
    rows = table8.figures(results(table8.cells("demo")))
    own = one(rows, table8.SHARE, prefix="own decoding")
    assert (own.value, own.document) == (pytest.approx(0.65), 0.6412)
    assert one(rows, table8.SHARE, prefix="reference").value == pytest.approx(0.55)
    assert one(rows, table8.EXCESS, prefix="own decoding").value == pytest.approx(0.15)
    paired = one(rows, "paired difference of the shares")
    assert (paired.value, paired.low, paired.high) == tuple(pytest.approx(0.1) for _ in range(3))
    single = table8.figures(results(table8.cells("demo")[:1]))
    assert one(single, table8.EXCESS, prefix="own decoding").low == pytest.approx(-0.9)  # −0.4 − ½


def test_resampling_is_compared_with_beam_search_of_the_same_model() -> None:
    rows = table9.figures(results(table9.cells("demo")))
    assert one(rows, "BLEU", system="E-ARM", K="0").value == pytest.approx(32.8)
    assert one(rows, "BLEU", system="E-ARM", K="0").document == 34.86
    assert one(rows, "BLEU", system="base", K="5").value == pytest.approx(31.55)
    assert one(rows, "BLEU", system="base", K="5").document is None
    paired = one(rows, "BLEU, paired difference", system="E-ARM", K="10 − 0")
    assert (paired.value, paired.document) == (pytest.approx(-0.25), 0.02)


def test_other_metrics_and_meteor_only_where_it_was_measured() -> None:
    found = results(table10.RECIPE.grid("demo"))
    rows = table10.figures(found)
    assert {row.name for row in rows if "METEOR" in row.name} == set()
    two = one(rows, "ROUGE-1", system="base")
    assert (two.value, two.document) == (pytest.approx(64.1), 66.51)
    assert one(rows, "ROUGE-L, paired difference", system="scheduled sampling − base").document == 0.33
    assert one(rows, "BLEU", system="E-ARM").value == pytest.approx(32.8)
    rows = table10.figures([({**cell, "meteor": True}, result) for cell, result in found])
    assert one(rows, "METEOR", system="scheduled sampling + E-ARM").document == 65.13


def test_curves_by_epoch() -> None:
    found = figure2.of_epochs(branch(0.0, 1)["curves"])
    assert found == {"training": {1: 4.0, 2: 2.0}, "validation": {1: 4.0, 2: 4.0}}
    cells = [{**cell, "epochs": 2, "start_epoch": 1} for cell in figure2.cells("demo")]
    made = results(cells)
    for _, result in made:
        result["branches"]["earm"]["curves"]["validation"][1][1] += 0.5
    rows = figure2.figures(made)
    assert one(rows, "held-out nats per token", system="base", epoch=2).value == pytest.approx(3.5)
    paired = one(rows, "held-out nats per token, E-ARM − base, paired", epoch=2)
    assert (paired.value, paired.low, paired.document) == (pytest.approx(0.5), pytest.approx(0.5), "below 0")
    assert len(figure2.panels(rows)) == 2


def test_differences_from_the_reference_are_marked_and_counted() -> None:
    assert cases.marked("the cat sat here", "the dog sat") == "the *cat* sat *here*"
    assert cases.marked("the sat", "the dog sat") == "the sat"
    assert cases.marked("", "the dog") == ""
    # cat, here and dog are alone, of 7 words.
    assert cases.share(["the cat sat here"], ["the dog sat"]) == pytest.approx(3 / 7)
    assert cases.share(["a b", "c"], ["a b", "d"]) == pytest.approx(2 / 6)
    assert cases.most_different([["a b", "c", "e"], ["a b", "d", "e"], ["a c", "f", "e"]], most=2) == [1, 0]


def test_cases_hold_the_texts_of_all_systems() -> None:
    found = results(cases.cells("demo"))
    for cell, result in found:
        if cell["variant"] == "scheduled sampling":
            result["branches"]["base"]["texts"] = ["one three", "five"]
    rows = cases.figures(found)
    assert one(rows, cases.SHARE, system="base").value == pytest.approx(2 / 6)
    assert one(rows, cases.DIFFERENCE, system="base + scheduled sampling − base").value == pytest.approx(0.0)
    shown = {(row.name, row.settings["system"]): row.settings["text"] for row in rows if row.name.startswith("case")}
    assert shown["case 1", "source"] == "fünf"
    assert shown["case 1", "base"] == "*six*"
    assert shown["case 1", "base + scheduled sampling"] == "five"
    assert shown["case 2", "base + scheduled sampling"] == "one *three*"
    assert shown["case 2", "E-ARM"] == shown["case 2", "reference"] == "one two"


def test_sizes_are_not_mixed() -> None:
    cells = table2.cells("cpu")
    made = results(cells)
    for cell, result in made:
        if cell["size"] == "large":
            for measured in result["branches"].values():
                measured["bleu"]["5"]["value"] += 10
    rows = table2.figures(made)
    for size, value, told in (("base", 30.1, 27.56), ("large", 40.1, 28.70)):
        found = one(rows, "BLEU, beam 5", size=size, system="base")
        assert (found.value, found.document) == (pytest.approx(value), told)
        paired = one(rows, "BLEU, beam 5, paired difference", size=size,
                     system="scheduled sampling + E-ARM − scheduled sampling")  # fmt: skip
        assert paired.value == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert {cell["direction"] for cell in cells} == {"en→de"}
    large = next(cell for cell in table2.cells("paper") if cell["size"] == "large")
    assert (large["hidden"], large["feedforward"], large["heads"], large["start_epoch"]) == (1024, 4096, 16, 10)


def test_a_median_of_times_has_the_interval_of_the_sign_test() -> None:
    # Of 25 values the 8th and the 18th, as in every table; of 6 all of them (1 − 2/2⁶ = 97 %); of 5 none.
    row = table11.median_row("s", {}, [float(value) for value in range(25, 0, -1)], None)
    assert (row.value, row.low, row.high) == (13.0, 8.0, 18.0)
    row = table11.median_row("s", {}, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], None)
    assert (row.value, row.low, row.high) == (3.5, 1.0, 6.0)
    row = table11.median_row("s", {}, [1.0, 2.0, 3.0, 4.0, 5.0], None)
    assert (row.value, row.low, row.warning) == (3.0, None, "5 rounds are too few for an interval")


def test_times_are_compared_round_by_round() -> None:
    seconds = {"base": [1.0, 2.0, 4.0], "E-ARM": [3.0, 4.0, 16.0]}
    rows = table11.figures([({}, {"seconds": seconds})])
    found = one(rows, table11.RATIO, method="E-ARM")
    assert (found.value, found.document) == (3.0, 5.34)  # the ratio of the medians would be 2
    assert one(rows, "seconds per 100 iterations", method="base").value == 200.0


def test_every_method_of_the_document_is_timed() -> None:
    cell = table11.cells("demo")[0]
    task = translation_task(cell)
    from ebar.recipes.earm.translation import build as build_translator

    assert set(table11.methods_of(cell, build_translator(cell, task), 10)) == set(table11.DOCUMENT)


def translation_task(cell: Cell) -> Any:
    from ebar.recipes.earm.translation_data import task_of as translation_task_of

    return translation_task_of(cell)


def test_the_cells_of_an_ablation_differ_in_nothing_but_the_seed() -> None:
    for scale in SCALES:
        shared = [{key: value for key, value in cell.items() if key != "seed"} for cell in recent.cells(scale)]
        assert all(cell == shared[0] for cell in shared)
    assert recent.cells("cpu")[0]["recent"] == [0, 1, 2, 3, 5, None]
    costs = {"base": 2.0, "0": 1.9, "2": 1.5, "all": 1.75}
    made = [
        ({"seed": seed}, {name: {"nats_per_token": estimate(cost + seed)} for name, cost in costs.items()})
        for seed in range(2)
    ]
    rows = recent.figures(made)
    assert one(rows, recent.FROM_BASE, m="2").value == pytest.approx(-0.5)
    assert one(rows, recent.FROM_TWO, m="all").value == pytest.approx(0.25)
    assert one(rows, recent.COST, m="2").document == "best"


@pytest.mark.parametrize("data_term", [True, False])
def test_the_term_alone_is_earm_less_the_cross_entropy(data_term: bool) -> None:
    cell = without_ce.cells("demo")[0]
    task = task_of(cell)
    torch.manual_seed(0)
    model = build(cell, task).double()
    batch: Sequences = task.train.select(torch.arange(10))

    def value(objective: Objective) -> float:
        (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator().manual_seed(1))
        return float(loss.value.detach())

    both = value(Earm(model=model, weight=1.0, data_term=data_term))
    alone = value(Earm(model=model, weight=1.0, data_term=data_term, cross_entropy=False))
    assert alone == pytest.approx(both - value(MaximumLikelihood(model=model)), abs=1e-9)
    assert abs(alone) > 0.1


def test_curves_without_cross_entropy_end_beside_those_with_it() -> None:
    def curve(end: float) -> dict[str, Any]:
        return {"validation": [[5, 3.0], [10, end]]}

    made: list[tuple[Cell, dict[str, Any]]] = [
        ({}, {without_ce.BASE: curve(2.0 + seed), "equation 12 alone, from scratch": curve(4.0 + seed)})
        for seed in range(2)
    ]
    rows = without_ce.figures(made)
    found = one(rows, without_ce.DIFFERENCE)
    assert (found.value, found.low, found.document) == (pytest.approx(2.0), pytest.approx(2.0), "did not work well")
    assert one(rows, without_ce.COST, epoch=2, **{"trained by": without_ce.BASE}).value == pytest.approx(2.5)
    assert [line.dashed for line in without_ce.panels(rows)[0].lines] == [False, True]


def test_settings_of_the_readings_are_those_of_the_document() -> None:
    assert {cell["scheduled_sampling"] for cell in table8.cells("paper")} == {False}
    assert {cell["label_smoothing"] for cell in [*table7.cells("cpu"), *table8.cells("cpu")]} == {0.1}
    assert {cell["candidates"] == [5, 10] for cell in table9.cells("cpu")} == {True}
    assert {cell["direction"] for cell in figure2.cells("paper")} == {"es→en"}
    assert len(table1.RECIPE.grid("cpu")) == 3 * translation_settings.SEEDS["cpu"]
