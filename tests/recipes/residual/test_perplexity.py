"""What the page says of an order of models, from figures made up here."""

import math
from typing import Any

import pytest

from ebar.recipes.residual.perplexity import DIFFERENCE, PERPLEXITY, figures, notes, panels

CELL = {"corpus": "gmb-news", "base": "transformer", "seed": 0}


def rival(perplexity: float) -> dict[str, Any]:
    """Two continuations of 10 and of 30 tokens."""
    cost = math.log(perplexity)
    return {"parameters": 7, "nats": [10 * cost - 1, 30 * cost + 1], "tokens": [10, 30]}


def energy(*values: float) -> list[dict[str, Any]]:
    """One seed for each value; the base's is 40."""
    return [
        {
            "parameters": 5, "held_out": {"accuracy": 0.6},
            "joint": {
                "base": 40.0, "low": value - 0.1, "value": value, "high": value + 0.1, "verdict": "below",
                "moved": 0.01, "share_light": 1.0,
                "difference": {
                    "value": math.log(value / 40), "low": -1.0, "high": 1.0, "effective_sample_size": 2.0,
                    "warning": None, "level": 0.95,
                },
            },
        }
        for value in values
    ]  # fmt: skip


def rows_of(balm: float, **energies: list[dict[str, Any]]) -> Any:
    rivals = {"base": rival(40), "ralm": rival(39.9), "balm": rival(balm)}
    return figures([(CELL, {"rivals": rivals, "energies": energies})])


def test_perplexities_are_per_token_and_differences_are_over_seeds():
    rows = rows_of(39.5, unit=energy(39.0, 38.0, 37.0))
    values = {row.settings["model"]: row.value for row in rows if row.name == PERPLEXITY}
    assert values["base LM"] == pytest.approx(40)
    assert values["BALM"] == pytest.approx(39.5)
    (row,) = (row for row in rows if row.name == DIFFERENCE)
    assert row.value == pytest.approx(math.log(39 * 38 * 37 / 40**3) / 3)
    assert len(panels(rows)) == 1


def test_the_documents_order_and_another_one_are_told_apart():
    same = notes(rows_of(39.5, unit=energy(39.0, 39.01), bit=energy(38.0, 38.01), pretrained=energy(30.0, 30.01)))
    assert same[0] == "Transformer on gmb-news: best first BiT*, BiT, UniT, as in the document."
    assert not any("BALM is below" in note for note in same)
    other = notes(rows_of(39.5, unit=energy(38.0, 38.01), bit=energy(39.0, 39.01), pretrained=energy(30.0, 30.01)))
    assert other[0].startswith("Transformer on gmb-news: best first BiT*, UniT, BiT; the document has BiT*, BiT, UniT.")
    assert "no finding" not in other[0]
    doubtful = notes(rows_of(39.5, unit=energy(38.0, 39.0), bit=energy(38.4, 39.4)))
    assert doubtful[0].endswith("Their intervals overlap, so that the order is no finding.")


def test_a_larger_plain_model_that_is_better_is_said_to_be():
    said = notes(rows_of(35.0, unit=energy(39.0, 39.1), bit=energy(38.0, 38.1), pretrained=energy(30.0, 30.1)))
    assert any("BALM is below BiT and UniT, unlike in the document" in note for note in said)
