"""What the page says of an order of models, from figures made up here."""

import math
from typing import Any

import pytest

from ebar.recipes.figures import crossed
from ebar.recipes.recipe import several
from ebar.recipes.residual.perplexity import DIFFERENCE, PERPLEXITY, RECIPE, notes

CELL = {"corpus": "gmb-news", "base": "transformer", "seed": 0}


def rival(perplexity: float) -> dict[str, Any]:
    """Two continuations of 10 and of 30 tokens."""
    cost = math.log(perplexity)
    return {"parameters": 7, "nats": [10 * cost - 1, 30 * cost + 1], "tokens": [10, 30]}


def energy(*values: float) -> list[dict[str, Any]]:
    """One seed for each value, which both prefixes gain in proportion to their length; the base's is 40."""
    return [
        {
            "parameters": 5, "held_out": {"accuracy": 0.6},
            "gains": [size * math.log(value / 40) for size in (10, 30)],
            "evaluation": {"perplexity": {
                "base": 40.0, "low": value - 0.1, "value": value, "high": value + 0.1, "verdict": "below",
                "moved": 0.01, "share_light": 1.0,
                "difference": {
                    "value": math.log(value / 40), "low": -1.0, "high": 1.0, "effective_sample_size": 2.0,
                    "warning": None, "level": 0.95,
                },
            }},
        }
        for value in values
    ]  # fmt: skip


def rows_of(balm: float, **energies: list[dict[str, Any]]) -> Any:
    rivals = {"base": rival(40), "ralm": rival(39.9), "balm": rival(balm)}
    return RECIPE.rows([(CELL, {"rivals": rivals, "energies": energies})])


def differences(rows: Any) -> dict[str, Any]:
    return {row.settings["model"]: row for row in rows if row.name == DIFFERENCE}


def test_perplexities_are_per_token_and_differences_are_over_seeds_and_prefixes():
    rows = rows_of(39.5, unit=energy(39.0, 38.0, 37.0))
    values = {row.settings["model"]: row.value for row in rows if row.name == PERPLEXITY}
    assert values["base LM"] == pytest.approx(40)
    assert values["BALM"] == pytest.approx(39.5)
    row = differences(rows)["UniT"]
    assert row.value == pytest.approx(math.log(39 * 38 * 37 / 40**3) / 3)
    assert row.over == "3 energy seeds and 2 prefixes, which they share"
    assert row.values is not None
    found = crossed(row.values, [10, 30])
    assert (row.low, row.high) == pytest.approx((found.low, found.high))
    assert [len(plot(rows)) for plot in several(RECIPE.plots)] == [1]


def test_prefixes_that_gain_unequally_widen_the_interval():
    even, uneven = energy(39.0, 38.0, 37.0), energy(39.0, 38.0, 37.0)
    for run in uneven:
        run["gains"] = [run["gains"][0] + 1, run["gains"][1] - 1]
    narrow, wide = (differences(rows_of(39.5, unit=runs))["UniT"] for runs in (even, uneven))
    assert narrow.value == wide.value
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_a_plain_rival_has_an_interval_over_prefixes():
    balm = rival(40)
    balm["nats"] = [balm["nats"][0] + 1, balm["nats"][1] - 3]
    row = differences(RECIPE.rows([(CELL, {"rivals": {"base": rival(40), "balm": balm}, "energies": {}})]))["BALM"]
    # (1 − 3)/40; residuals ±1.5, so a standard error of √(2·4.5)/40; t of one degree is 12.7062.
    assert (row.value, row.high - row.value) == pytest.approx((-0.05, 12.7062 * 3 / 40), rel=1e-5)
    assert row.over == "2 prefixes, one seed"


def test_the_papers_order_and_another_one_are_told_apart():
    same = notes(rows_of(39.5, unit=energy(39.0, 39.01), bit=energy(38.0, 38.01), pretrained=energy(30.0, 30.01)))
    assert same[0] == (
        "Transformer on gmb-news: best first BiT*, BiT, UniT. No two intervals overlap. The paper, on other text, has "
        "BiT*, BiT, UniT, as here."
    )
    assert not any("BALM's perplexity is below" in note for note in same)
    other = notes(rows_of(39.5, unit=energy(38.0, 38.01), bit=energy(39.0, 39.01), pretrained=energy(30.0, 30.01)))
    assert other[0].startswith("Transformer on gmb-news: best first BiT*, UniT, BiT. No two intervals overlap. ")
    assert "has BiT*, BiT, UniT." in other[0]
    assert "no finding" not in other[0]


def test_overlapping_intervals_are_said_whichever_order_is_ours():
    for unit, bit in ((energy(38.0, 39.0), energy(38.4, 39.4)), (energy(38.4, 39.4), energy(38.0, 39.0))):
        assert "overlap: their order is no finding." in notes(rows_of(39.5, unit=unit, bit=bit))[0]


def test_of_an_order_that_the_paper_does_not_give_nothing_is_said():
    cell = {**CELL, "corpus": "gutenberg-novels"}
    rivals = {"base": rival(40), "ralm": rival(39.9), "balm": rival(39.5)}
    energies = {"unit": energy(39.0, 39.01), "bit": energy(38.0, 38.01)}
    said = notes(RECIPE.rows([(cell, {"rivals": rivals, "energies": energies})]))[0]
    assert "as here" not in said
    assert said.endswith("Of BiT on such text it says nothing.")


def test_a_larger_plain_model_that_is_better_is_said_to_be():
    said = notes(rows_of(35.0, unit=energy(39.0, 39.1), bit=energy(38.0, 38.1), pretrained=energy(30.0, 30.1)))
    assert any("BALM's perplexity is below that of BiT and UniT" in note for note in said)


def test_the_papers_perplexities_are_of_its_own_text():
    assert all(row.document is None for row in rows_of(39.5, unit=energy(39.0)))
    rows = RECIPE.rows([({**CELL, "corpus": "cc-news"}, {"rivals": {"base": rival(40)}, "energies": {}})])
    assert [row.document for row in rows] == ["14.89"]
