"""What the page says of the paper's comparisons, from figures made up here."""

import math
from typing import Any

import pytest

from ebar.recipes.claims import NOT_MEASURED, Claim
from ebar.recipes.figures import crossed
from ebar.recipes.recipe import several
from ebar.recipes.residual.perplexity import DIFFERENCE, PAIRED, PERPLEXITY, RECIPE

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


def compared(rows: Any, one: str, other: str) -> Any:
    return next(row for row in rows if row.name == PAIRED.format(one=one, other=other))


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


def test_seeds_that_runs_share_out_are_those_of_one_run():
    together = RECIPE.rows([(CELL, {"rivals": {"base": rival(40)}, "energies": {"unit": energy(39.0, 38.0, 37.0)}})])
    cells = [{**CELL, "energies": {"unit": {"first_seed": first}}} for first in (0, 2)]
    shares = [energy(39.0, 38.0), energy(37.0)]
    apart = RECIPE.rows([
        (cell, {"rivals": {"base": rival(40)}, "energies": {"unit": runs}})
        for cell, runs in zip(cells, shares, strict=True)
    ])  # fmt: skip
    assert sorted(map(str, apart)) == sorted(map(str, together))
    assert differences(apart)["UniT"].over == "3 energy seeds and 2 prefixes, which they share"


def test_a_plain_rival_has_an_interval_over_prefixes():
    balm = rival(40)
    balm["nats"] = [balm["nats"][0] + 1, balm["nats"][1] - 3]
    row = differences(RECIPE.rows([(CELL, {"rivals": {"base": rival(40), "balm": balm}, "energies": {}})]))["BALM"]
    # (1 − 3)/40; residuals ±1.5, so a standard error of √(2·4.5)/40; t of one degree is 12.7062.
    assert (row.value, row.high - row.value) == pytest.approx((-0.05, 12.7062 * 3 / 40), rel=1e-5)
    assert row.over == "2 prefixes, one seed"


def test_sizes_are_compared_seed_by_seed_on_the_same_prefixes():
    rows = rows_of(39.5, bit_base=energy(39.0, 38.0), bit_med=energy(38.0, 37.5))
    row = compared(rows, "BiT-Med", "BiT-Base")
    assert row.value == pytest.approx((math.log(38 / 39) + math.log(37.5 / 38)) / 2)
    assert row.over == "2 energy seeds and 2 prefixes, which they share"
    # The paper's, from the middles of its intervals: 12.40 and 13.02.
    assert row.document == pytest.approx(math.log(12.40 / 13.02), abs=5e-5)
    verdicts = {claim.figure: claim(rows).verdict for claim in several(RECIPE.claims) if isinstance(claim, Claim)}
    assert verdicts[PAIRED.format(one="BiT-Large*", other="BiT-Base*")] == NOT_MEASURED


def test_every_comparison_of_the_paper_has_the_sign_that_is_claimed():
    energies = {kind: energy(39.0) for kind in
                ("unit", "bit_base", "bit_med", "pretrained_base", "pretrained_large")}  # fmt: skip
    theirs = [row.document for row in rows_of(39.5, **energies) if row.document is not None]
    assert len(theirs) == 7
    assert all(float(value) < 0 for value in theirs)


def test_the_papers_perplexities_are_of_its_own_text():
    assert all(row.document is None for row in rows_of(39.5, unit=energy(39.0)) if row.name == PERPLEXITY)
    rows = RECIPE.rows([({**CELL, "corpus": "cc-news"}, {"rivals": {"base": rival(40)}, "energies": {}})])
    assert [row.document for row in rows] == ["14.89"]
