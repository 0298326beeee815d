"""What a page says of students and of samplers, from figures made up here."""

from typing import Any

import pytest

from ebar.recipes.recipe import several
from ebar.recipes.residual.outlook import AGAIN, DISTILLED, FIRST, PAIRED, SAMPLERS, STUDENTS
from ebar.recipes.residual.reading import by_task
from ebar.recipes.residual.students import DATA, GRADIENT, JOINT, OWN

CELL: dict[str, Any] = {"corpus": "gmb-news", "base": "transformer", "seed": 0, "energies": {"unit": {}}}
TOKENS = [10, 10, 10]


def around(value: float) -> list[float]:
    """Nats of three prefixes: this much for each token, more or less."""
    return [10 * value - 0.01, 10 * value, 10 * value + 0.01]


def rows_of(**means: float) -> Any:
    """Three seeds of each student that differ by little."""
    ways = {"data": DATA, "own": OWN, "joint": JOINT, "gradient": GRADIENT}
    gains = {ways[name]: [around(value + move) for move in (-1e-4, 0, 1e-4)] for name, value in means.items()}
    run = {"parameters": 1, "gains": around(-0.1), "distilled": {"gains": gains, "again": around(-0.12)}}
    rivals = {"base": {"parameters": 1, "nats": [40.0] * 3, "tokens": TOKENS}}
    return DISTILLED.rows([(CELL, {"rivals": rivals, "energies": {"unit": [run]}})])


def test_students_are_compared_seed_by_seed_and_over_prefixes() -> None:
    rows = rows_of(data=0.0, own=0.02, joint=0.015, gradient=0.03)
    found = {row.settings.get("of", row.name): row for row in rows}
    assert found[STUDENTS[JOINT]].value == pytest.approx(0.015)
    assert found[STUDENTS[JOINT]].over == "3 students and 3 prefixes, which they share"
    assert found[FIRST].over == "3 prefixes, one training"
    less = found[PAIRED.format(one=STUDENTS[JOINT], other=STUDENTS[OWN])]
    # Seeds and prefixes move both alike, so that nothing of either is left in the difference.
    assert (less.value, less.low, less.high) == pytest.approx((-0.005, -0.005, -0.005))
    assert found[PAIRED.format(one=AGAIN, other=FIRST)].value == pytest.approx(-0.02)
    assert [claim(rows).split("**")[1] for claim in several(DISTILLED.claims)] == ["Reproduced", "Reproduced"]


@pytest.mark.parametrize(
    ("data", "joint", "said"),
    [(0.01, 0.02, "the base. It is what"), (-0.05, 0.02, "the draws. As many texts"), (-0.05, -0.03, "1 of 1 cases")],
)
def test_why_a_student_does_not_gain_is_told_by_the_data(data: float, joint: float, said: str) -> None:
    notes = DISTILLED.notes(rows_of(data=data, own=0.02, joint=joint, gradient=0.0))
    assert any(said in note for note in notes)
    assert any(note.startswith("Why") for note in notes) == (joint > 0)


def test_the_nearest_sampler_is_named_and_what_is_not_told_from_exact() -> None:
    def figure(value: float) -> dict[str, Any]:
        gap = {"value": value, "low": value - 0.1, "high": value + 0.1, "effective_sample_size": 50.0, "warning": None,
               "level": 0.95}  # fmt: skip
        return {"gap": gap, "texts": 20.0}

    ways = {"resampling": figure(0.05), "SMC": figure(0.5), "Metropolis, whole texts": figure(-0.08)}
    run = {"parameters": 1, "samplers": {"base": figure(1.0)["gap"], "budgets": {"20": ways}}}
    rows = SAMPLERS.rows([(CELL, {"rivals": {}, "energies": {"unit": [run]}})])
    assert SAMPLERS.notes(rows)[0] == (
        "20 texts: nearest to the joint model is resampling (+0.050); not told from it: resampling, Metropolis, whole "
        "texts."
    )


def test_runs_of_one_base_are_read_as_one_and_of_two_refused() -> None:
    base = {"parameters": 1, "nats": [1.0], "tokens": [2]}
    one = (CELL, {"rivals": {"base": base}, "energies": {"unit": [1]}})
    other = (
        {**CELL, "energies": {"bit_med": {}}},
        {"rivals": {"base": base, "balm": base}, "energies": {"bit_med": [2]}},
    )
    ((cell, result),) = by_task([one, other])
    assert set(cell["energies"]) == {"unit", "bit_med"}
    assert result == {"rivals": {"base": base, "balm": base}, "energies": {"unit": [1], "bit_med": [2]}}
    moved = {**base, "nats": [1.5]}
    with pytest.raises(ValueError, match="have different bases"):
        by_task([one, (other[0], {"rivals": {"base": moved}, "energies": {}})])
