import math

import pytest

from ebar.training.optimisers import SCHEDULES, for_steps
from ebar.types import Clock

WORKED = [  # name, options, step, epoch, factor
    ("constant", {}, 0, 0, 1.0),
    ("constant", {"warmup": 4}, 0, 0, 0.25),
    ("constant", {"warmup": 4}, 3, 0, 1.0),
    ("linear", {"steps": 10}, 0, 0, 1.0),
    ("linear", {"steps": 10}, 4, 0, 0.6),
    ("linear", {"steps": 10}, 99, 0, 0.0),
    ("linear", {"steps": 12, "warmup": 2, "floor": 0.5}, 7, 0, 0.75),
    ("held_linear", {"steps": 12}, 8, 0, 1.0),
    ("held_linear", {"steps": 12}, 10, 0, 0.5),
    ("held_linear", {"steps": 10, "held": 0.5, "floor": 0.2}, 9, 0, 0.36),  # 1 − 0.8·4/5
    ("cosine", {"steps": 12}, 4, 0, 0.75),  # (1 + cos 60°)/2
    ("cosine", {"steps": 12, "floor": 0.1}, 12, 0, 0.1),
    ("cosine", {"steps": 14, "warmup": 2}, 0, 0, 0.5),
    ("inverse_square_root", {}, 3, 0, 0.5),
    ("inverse_square_root", {"warmup": 4}, 1, 0, 0.5),
    ("inverse_square_root", {"warmup": 4}, 3, 0, 1.0),
    ("inverse_square_root", {"warmup": 4}, 15, 0, 0.5),
    ("inverse_epoch", {}, 999, 0, 1.0),
    ("inverse_epoch", {}, 999, 3, 0.25),
    ("epoch_decay", {"constant": 2, "decay": 0.5, "floor": 0.2}, 999, 2, 1.0),
    ("epoch_decay", {"constant": 2, "decay": 0.5, "floor": 0.2}, 999, 4, 0.25),
    ("epoch_decay", {"constant": 2, "decay": 0.5, "floor": 0.2}, 999, 5, 0.2),
]


@pytest.mark.parametrize(("name", "options", "step", "epoch", "factor"), WORKED)
def test_factors_worked_out_by_hand(name, options, step, epoch, factor):
    assert SCHEDULES[name](**options).factor(Clock(step, epoch)) == pytest.approx(factor, abs=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_to_1_and_never_exceeds_it(name):
    options = {"steps": 50} if name in ("linear", "held_linear", "cosine") else {}
    factors = [SCHEDULES[name](**options, warmup=10).factor(Clock(step, 0)) for step in range(60)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(factors) == 1.0
    assert all(math.isfinite(factor) and factor >= 0 for factor in factors)


@pytest.mark.parametrize("name", ["linear", "held_linear", "cosine"])
def test_a_schedule_without_steps_ends_with_the_training(name):
    schedule = for_steps(SCHEDULES[name](warmup=2, floor=0.5), 12)
    assert schedule == SCHEDULES[name](steps=12, warmup=2, floor=0.5)
    assert for_steps(schedule, 99) == schedule
    with pytest.raises(ValueError, match="how many steps"):
        SCHEDULES[name]().factor(Clock(0, 0))


def test_a_schedule_that_needs_no_number_of_steps_is_left_alone():
    schedule = SCHEDULES["constant"](warmup=3)
    assert for_steps(schedule, 12) is schedule
