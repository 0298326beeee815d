"""Intervals that hold the error of seeds and of the test items they share."""

import math

import numpy
import pytest

from ebar.recipes.figures import (
    Interval,
    combined_error,
    crossed,
    over_items,
    over_seeds,
    over_seeds_alone,
    with_items,
)  # fmt: skip
from ebar.types import Estimate

REPEATS = 1000


def test_two_errors_add_up_as_the_legs_of_a_right_angle() -> None:
    found = combined_error(Interval(1.0, 1 - 3, 1 + 5), Interval(7.0, 7 - 4, 7 + 12))
    assert found == Interval(1.0, 1 - 5, 1 + 13)


def test_a_ratio_over_items_is_students_where_all_are_of_one_size() -> None:
    # 1, 2, 6 of size 1: mean 3, deviation √7, and t of 2 degrees is 4.302653.
    found = over_items([1.0, 2.0, 6.0], [1.0, 1.0, 1.0])
    width = 4.302653 * math.sqrt(7 / 3)
    assert found == pytest.approx((3, 3 - width, 3 + width), rel=1e-6)
    # The same in units half as large.
    assert over_items([1.0, 2.0, 6.0], [2.0, 2.0, 2.0]) == pytest.approx([end / 2 for end in found])
    # Sums in proportion to sizes leave nothing to vary.
    assert over_items([1.0, 2.0, 6.0], [2.0, 4.0, 12.0]) == pytest.approx((0.5, 0.5, 0.5))
    assert over_items([1.0], [1.0]) == (1.0, -math.inf, math.inf)


def test_a_single_seed_has_the_error_of_items_alone_and_equal_items_that_of_seeds() -> None:
    assert crossed([[1.0, 2.0, 6.0]], [1, 1, 1]) == over_items([1.0, 2.0, 6.0], [1, 1, 1])
    assert crossed([[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]], [1, 1]) == pytest.approx(over_seeds_alone([1.0, 2.0, 6.0]))


# Deviations of seeds, of items, of both together; then the share that one error alone covers, at most.
@pytest.mark.parametrize(
    ("deviations", "alone", "covers"), [((0.0, 1.0, 0.3), "seeds", 0.6), ((1.0, 1.0, 1.0), "items", 0.5)]
)
def test_both_errors_cover_where_one_alone_does_not(
    deviations: tuple[float, float, float], alone: str, covers: float
) -> None:
    """Coverage is 0.96 here, and 0.46 and 0.30 of one error alone: below 0.93, or above `covers`, once in 10⁵ runs."""
    generator = numpy.random.default_rng()
    both = one = 0
    for _ in range(REPEATS):
        seeds, items, rest = (
            generator.normal(0, deviation, shape)
            for deviation, shape in zip(deviations, [(3, 1), (1, 100), (3, 100)], strict=True)
        )
        values = seeds + items + rest
        found = crossed(values.tolist(), [1.0] * 100)
        both += found.low <= 0 <= found.high
        part = (
            over_seeds_alone(values.mean(1).tolist())
            if alone == "seeds"
            else over_items(values.mean(0).tolist(), [1.0] * 100)
        )
        one += part.low <= 0 <= part.high
    assert both > 0.93 * REPEATS
    assert one < covers * REPEATS


def test_a_figure_over_seeds_takes_on_the_error_of_the_items_they_share() -> None:
    row = over_seeds("BLEU", {}, [24.0, 25.0, 26.0])
    assert row.value is not None
    assert row.low is not None
    found = with_items(row, Estimate(24.0, 23.0, 25.0, 1000.0), "test sentences")
    assert found.over == "3 seeds and the test sentences that they share"
    assert found.low == pytest.approx(25 - math.hypot(25 - row.low, 1))
    assert with_items(over_seeds("BLEU", {}, [24.0]), Estimate(24.0, 23.0, 25.0, 1.0), "sentences").over is None
