import math

import pytest

from ebar.training.stopping import Best, Patience


def test_a_better_value_resets_the_count():
    best, patience, trace = Best(), Patience(evaluations=2), []
    for step, value in enumerate([5.0, 6.0, 4.0, 4.0, 4.5]):
        best = best.update(value, step)
        trace.append((best.value, best.step, best.stale, patience.exhausted(best)))
    assert trace == [(5, 0, 0, False), (5, 0, 1, False), (4, 2, 0, False), (4, 2, 1, False), (4, 2, 2, True)]


@pytest.mark.parametrize("value", [math.nan, math.inf, 4.95])
def test_what_is_not_better_by_the_margin_is_stale(value):
    assert Best(5.0, 1).update(value, 2, margin=0.1) == Best(5.0, 1, 1, 1)


def test_nan_is_never_the_best_even_when_it_comes_first():
    assert Best().update(math.nan, 1) == Best(None, None, 1, 1)


def test_patience_in_all_never_forgets_an_epoch_that_was_no_better():
    best, patience, trace = Best(), Patience(evaluations=2, in_all=True), []
    for step, value in enumerate([5.0, 6.0, 4.0, 4.5]):
        best = best.update(value, step)
        trace.append(patience.exhausted(best))
    assert trace == [False, False, False, True]
    assert not Patience(evaluations=2).exhausted(best)  # in a row it was only one
