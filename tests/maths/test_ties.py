"""When there is too little to go by: weights in lumps have no tail, and few prefixes do not speak for others."""

import pytest
import torch

from ebar.estimators.per_step import mean_between
from ebar.maths.importance import pareto_k, tail_size


def test_a_tail_of_which_a_quarter_differs_from_the_next_has_no_index():
    # Lumps of four equal weights, the largest alone: of the 20 steps down the tail 6 are steps at all.
    lumps = torch.arange(25).repeat_interleave(4) * 0.1
    lumps[-1] += 0.05
    assert tail_size(len(lumps)) == 20
    assert bool(pareto_k(lumps[None]).isnan().all())


def test_a_tail_of_which_most_differ_has_one():
    # One pair in every four: 15 of the 20 steps are steps.
    places = torch.arange(100.0)
    places[1::4] = places[::4]
    assert bool(pareto_k(places[None] * 0.1).isfinite().all())


@pytest.mark.parametrize(("rows", "few"), [(29, True), (30, False)])
def test_fewer_than_thirty_prefixes_cannot_speak_for_others(rows: int, few: bool):
    values = torch.arange(rows, dtype=torch.float64)
    assert (mean_between(values, values, values).warning is not None) == few
