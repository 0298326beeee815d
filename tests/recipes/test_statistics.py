"""Figures over seeds, and what their runs warn of."""

import pytest

from ebar.recipes.figures import over_seeds
from ebar.types import Estimate

SAID = "every draw has the feature 'motif'"


def estimate(value: float, warning: str | None = None) -> Estimate:
    return Estimate(value, value - 0.1, value + 0.1, 100.0, warning)


def test_a_single_run_keeps_its_interval_and_its_warning():
    row = over_seeds("moment", {}, [estimate(1.0, SAID)])
    assert (row.value, row.low, row.high, row.warning) == (1.0, 0.9, 1.1, SAID)
    assert over_seeds("moment", {}, [1.0], single=estimate(1.0, SAID)).warning == SAID
    assert over_seeds("moment", {}, [estimate(1.0)]).warning is None


def test_over_seeds_it_is_said_how_many_runs_warn():
    """By hand: 1, 2 and 3 have mean 2, deviation 1, and Student's quantile 4.302653 over √3."""
    row = over_seeds("moment", {}, [estimate(1.0), estimate(2.0, SAID), estimate(3.0, SAID)])
    assert (row.value, row.warning) == (2.0, f"2 of 3 runs: {SAID}")
    assert row.high == pytest.approx(2 + 4.302653 / 3**0.5, abs=1e-5)
    assert over_seeds("moment", {}, [estimate(1.0), estimate(2.0)]).warning is None


def test_what_only_the_first_run_is_known_to_warn_of_is_said_of_it_alone():
    row = over_seeds("moment", {}, [1.0, 2.0], single=estimate(1.0, SAID), warning="few epochs")
    assert row.warning == f"few epochs; the first of 2 runs: {SAID}"


def test_one_seed_without_an_interval_says_so():
    assert over_seeds("moment", {}, [1.0]).warning == "one seed"
