"""Claims: the verdict in a word, and where nothing is decided, what size would decide it."""

import math

import pytest
import torch
from torch import Generator

from ebar.recipes.claims import IN_PART, NOT_MEASURED, NOT_REPRODUCED, REPRODUCED, UNDECIDED, Claim, overall
from ebar.recipes.figures import over_seeds, over_seeds_alone
from ebar.recipes.power import MOST, power, power_of, seeds_for, smallest
from ebar.recipes.recipe import Row

LOWER = Claim(says="it is lower", figure="difference", below=0.0, because="the learning rate is 0.")


def row(
    low: float | None, value: float, high: float | None, over: str = "3 seeds", paper: float | None = None, n: int = 1
) -> Row:
    ends = [None if end is None else float(end) for end in (low, high)]
    return Row(
        name="difference", settings={"n": n}, value=float(value), low=ends[0], high=ends[1], over=over, document=paper
    )


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(-3, -2, -1)], REPRODUCED),
        ([row(-3, -2, -1), row(-1, 0.5, 2, n=2)], IN_PART),
        ([row(-3, -2, -1), row(1, 2, 3, n=2)], IN_PART),
        ([row(1, 2, 3)], NOT_REPRODUCED),
        ([row(1, 2, 3), row(-1, 0.5, 2, n=2)], NOT_REPRODUCED),
        ([row(-1, 0.5, 2)], UNDECIDED),
        ([row(None, -5, None)], UNDECIDED),  # one seed without an interval
        ([], NOT_MEASURED),
    ],
)
def test_the_verdict_is_that_of_the_intervals(rows: list[Row], verdict: str) -> None:
    found = LOWER(rows)
    assert found.verdict == verdict
    assert found.sentence.startswith(f"**{verdict.capitalize()}**: it is lower (difference below 0): ")
    assert list(found.rows) == rows
    assert ("Why: the learning rate is 0." in found.sentence) == any((one.low or 0) > 0 for one in rows)
    assert ("What size would do" in found.sentence) == any((one.high or -1) > 0 > (one.low or 0) for one in rows)


def test_what_is_on_the_other_side_without_a_known_reason_says_so() -> None:
    assert Claim(says="it is higher", figure="difference", above=0.0)([row(-3, -2, -1)]).sentence == (
        "**Not reproduced**: it is higher (difference above 0): 0 of 1 figures; 1 on the other side (n 1). "
        "The reason is not known."
    )


def test_an_undecided_claim_says_what_it_could_have_told_and_what_size_would_do() -> None:
    """Five paired differences of mean −1 and deviation 2. Power of the one-sided 0.025 test by tables of the noncentral
    t: 5 seeds tell 1.6819 deviations (G*Power), and half a deviation takes 34 seeds, a whole one 10.
    """
    values = [
        -1 + 2 * x for x in (-1.2649110640673518, -0.6324555320336759, 0.0, 0.6324555320336759, 1.2649110640673518)
    ]
    own = over_seeds("difference", {"n": 1}, values, document=-2.0)
    sentence = LOWER([row(own.low, -1.0, own.high, "5 seeds", paper=-2.0)]).sentence
    assert sentence.endswith(
        "What size would do: with 5 seeds a distance of 3.364 from 0 shows with 80 % power; to decide what was seen, "
        "-1, takes about 34 seeds, a figure such as the paper's, -2, about 10 seeds."
    )


def test_over_test_items_it_says_how_many_times_as_many() -> None:
    """By hand: the error is 1.96/1.96 = 1, so 2.8016 of it are told; a distance of 1.4008 takes four times as many."""
    found = power_of(row(-1.959964 - 1.400793, -1.400793, 1.959964 - 1.400793, "100 prefixes, one seed"), -1.0, 0.0)
    assert found is not None
    assert (found.least, found.takes, found.papers) == pytest.approx((2.801585, 4.0, None), abs=1e-5)
    assert found.unit == "times as many"
    both = power_of(row(-3, -1, 1, "3 seeds and the sentences that they share"), -1.0, 0.0)
    assert both is not None
    assert both.unit == "times as many"  # more seeds alone would not do
    assert power_of(row(-math.inf, 0.0, math.inf), -1.0, 0.0) is None
    assert power_of(row(0.0, 0.0, 0.0), -1.0, 0.0) is None


def test_many_undecided_figures_are_told_by_their_ends() -> None:
    """By hand: of widths 1 and 3 over the same prefixes, the errors are in the ratio 1 : 3, what they take 1 : 9."""
    rows = [row(-1.1, -0.1, 0.9, "90 prefixes"), row(-3.1, -0.1, 2.9, "90 prefixes", n=2)]
    assert LOWER(rows).sentence.endswith(
        "with 90 prefixes a distance of 1.429 to 4.288 from 0 shows with 80 % power; to decide what was seen, -0.1, "
        "takes about 204 to 1,839 times as many."
    )


def test_power_is_how_often_the_interval_lies_on_the_right_side() -> None:
    """20,000 experiments of 5 seeds: 4.5 standard errors are 0.0127, one false alarm in 150,000 runs."""
    effect = smallest(1.0, 5)
    assert power(effect, 5) == pytest.approx(0.8, abs=1e-6)
    draws = torch.randn(20_000, 5, generator=Generator().manual_seed(0), dtype=torch.float64) + effect
    width = 2.776445 * draws.std(1) / math.sqrt(5)
    assert float((draws.mean(1) > width).double().mean()) == pytest.approx(0.8, abs=0.0127)
    low = over_seeds_alone(draws[0].tolist()).low
    assert low == pytest.approx(float(draws[0].mean() - width[0]), rel=1e-6)


def test_more_seeds_tell_smaller_effects_up_to_a_limit() -> None:
    assert smallest(2.0, 10) == pytest.approx(2 * smallest(1.0, 10))
    assert smallest(1.0, 10) < smallest(1.0, 5) < smallest(1.0, 2)
    assert seeds_for(-0.5, 1.0) == seeds_for(0.5, 1.0) == 34
    assert seeds_for(1e-3, 1.0) == math.inf
    assert smallest(1.0, MOST) == pytest.approx(2.8016 / math.sqrt(MOST), rel=1e-3)


def test_several_claims_have_one_verdict() -> None:
    assert overall([REPRODUCED, REPRODUCED]) == REPRODUCED
    assert overall([REPRODUCED, UNDECIDED]) == overall([REPRODUCED, NOT_MEASURED]) == overall([IN_PART]) == IN_PART
    assert overall([NOT_REPRODUCED, UNDECIDED]) == NOT_REPRODUCED
    assert overall([UNDECIDED, NOT_MEASURED]) == UNDECIDED
    assert overall([]) == NOT_MEASURED
