"""A judge that knows nothing is said to know nothing, from figures made up here."""

from typing import Any

from ebar.recipes.recipe import several
from ebar.recipes.residual.judges import ACCURACY, CHANCE, FOOLED, FOOLING, OWN, SAME

CELL = {"corpus": "gmb-news", "base": "transformer", "seed": 0}


def share(value: float, width: float, warning: str | None = None) -> dict[str, Any]:
    return {"value": value, "low": value - width, "high": value + width, "effective_sample_size": 9.0,
            "warning": warning, "level": 0.95}  # fmt: skip


def compared(base: float, joint: float, fooled: float) -> dict[str, Any]:
    """Accuracies on both systems' text, each known to 0.05, and how much oftener the joint model's fools."""
    rates = {name: {"accuracy": share(value, 0.05), "false_positive_rate": share(0.3, 0.05)}
             for name, value in (("base", base), ("joint", joint))}  # fmt: skip
    return {**rates, "difference": share(fooled, 0.02)}


def rows_of(**fooling: Any) -> Any:
    run = {"parameters": 1, "fooling": fooling}
    return FOOLING.rows([(CELL, {"rivals": {}, "energies": {"unit": [run]}})])


def doubts(rows: Any) -> dict[tuple[str, str | None], bool]:
    return {(row.settings["judge"], row.settings.get("system")): CHANCE in (row.warning or "") for row in rows}


def test_a_judge_is_rated_on_the_text_it_was_trained_against() -> None:
    # It knows the base's text (0.7 ± 0.05) and the joint model fools it entirely (0.52 ± 0.05): that is no doubt.
    assert doubts(rows_of(same=compared(0.7, 0.52, 0.3))) == {
        (SAME, "base"): False, (SAME, "joint"): False, (SAME, None): False,
    }  # fmt: skip
    # Of two judges the second learnt nothing.
    found = doubts(rows_of(same=compared(0.7, 0.6, 0.3), own=compared(0.7, 0.52, 0.3)))
    assert found[OWN, "joint"]
    assert found[OWN, None]
    assert not found[OWN, "base"]
    assert not found[SAME, None]


def test_a_judge_at_chance_decides_nothing() -> None:
    rows = rows_of(same=compared(0.52, 0.52, 0.01))
    assert all(doubts(rows).values())
    claims = [claim(rows) for claim in several(FOOLING.claims)]
    assert [claim.split("**")[1] for claim in claims] == ["Not reproduced", "Not reproduced"]
    assert FOOLING.notes(rows)[0].startswith("1 of 1 judges are at chance")


def test_another_warning_does_not_hide_that_a_judge_knows_nothing() -> None:
    made = compared(0.52, 0.52, 0.01)
    made["base"]["accuracy"] = share(0.52, 0.05, "few contexts")
    rows = rows_of(same=made)
    found = next(row for row in rows if row.name == ACCURACY and row.settings["system"] == "base")
    assert "few contexts" in str(found.warning)
    assert FOOLING.notes(rows)[0].startswith("1 of 1 judges are at chance")


def test_the_papers_rates_stand_beside_its_own_protocol_alone() -> None:
    rows = rows_of(same=compared(0.7, 0.6, 0.1), own=compared(0.7, 0.6, 0.1))
    theirs = {(row.name, row.settings["judge"], row.settings.get("system")): row.document for row in rows}
    assert theirs[ACCURACY, SAME, "base"] == "89.9 %"
    assert theirs[ACCURACY, SAME, "joint"] == "82.9 %"
    assert {theirs[key] for key in theirs if key[1] == OWN or key[0] == FOOLED} == {None}
