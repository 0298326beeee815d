"""How many requests wait, how long a model may take to open, and how much memory a request may take."""

import threading
from typing import Any

import pytest
import torch

from ebar.errors import UserError
from ebar.serve.allowance import Allowance, Meter, StoppedError, resident
from ebar.serve.catalogue import Opened
from ebar.serve.found import Asked, Found, Progress
from ebar.serve.limits import Limits
from ebar.serve.playground import Playground
from tests.serve.models import InMemory, Slow, coin, opened

HOUR = 3600.0
MEGABYTE = 2**20


def asked(name: str = "coin", **how: Any) -> Asked:
    return Asked(name=name, **{"length": 12, "draws": 50, **how})


def test_requests_beyond_the_line_are_refused_and_the_others_come_in_their_order() -> None:
    playground = Playground(InMemory(coin=opened(coin(12))), Limits(seconds=HOUR, at_once=1, waiting=2))
    first, second, third, fourth = (playground.compute(str(user), asked()) for user in range(4))
    assert next(first) == Progress("opening coin")
    assert next(second) == Progress("waiting, 1 before this one")
    assert next(third) == Progress("waiting, 2 before this one")
    with pytest.raises(UserError, match=r"The line is full \(2 waiting\): try again in a minute"):
        next(fourth)
    assert playground.busy == 3
    assert isinstance(list(first)[-1], Found)
    assert next(third) == Progress("waiting, 1 before this one")
    assert next(second) == Progress("opening coin")
    second.close()  # given up in the middle: the next begins all the same
    assert isinstance(list(third)[-1], Found)
    assert playground.busy == 0


def test_who_waits_can_be_stopped_and_computes_nothing() -> None:
    model = Slow(12)
    model.gate.set()
    playground = Playground(InMemory(slow=opened(model)), Limits(seconds=HOUR, at_once=1))
    first, waiting = playground.compute("me", asked("slow")), playground.compute("other", asked("slow"))
    next(first)
    next(waiting)
    playground.stop("other")
    with pytest.raises(StoppedError):
        next(waiting)
    assert model.steps == 0
    assert isinstance(list(first)[-1], Found)  # nobody else is stopped by it


class Opening(InMemory):
    """A shelf whose models open when a gate does, or fail."""

    def __init__(self, **models: Opened):
        super().__init__(**models)
        self.gate, self.times = threading.Event(), 0

    def open(self, name: str) -> Opened:
        self.times += 1
        self.gate.wait()
        return super().open(name)


def test_a_model_that_takes_too_long_to_open_ends_the_request_and_is_there_for_a_later_one() -> None:
    shelf = Opening(coin=opened(coin(12)))
    hurried = Playground(shelf, Limits(seconds=0.01))
    with pytest.raises(UserError, match=r"more than 0\.01 seconds.*coin is still being opened, so try again"):
        list(hurried.compute("me", asked()))
    assert hurried.busy == 0
    shelf.gate.set()
    patient = Allowance(HOUR)
    assert hurried.models.get("coin", patient) is shelf.models["coin"]
    assert shelf.times == 1


def test_who_waits_for_a_model_can_be_stopped() -> None:
    shelf = Opening(coin=opened(coin(12)))
    playground = Playground(shelf, Limits(seconds=HOUR))
    steps = playground.compute("me", asked())
    next(steps)
    threading.Timer(0.05, playground.stop, ["me"]).start()
    with pytest.raises(StoppedError):
        next(steps)
    shelf.gate.set()


def test_a_model_that_could_not_be_opened_is_tried_again() -> None:
    shelf = InMemory()
    playground = Playground(shelf, Limits(seconds=HOUR))
    for _ in range(2):
        with pytest.raises(UserError, match="There is no model called 'coin'"):
            list(playground.compute("me", asked()))
    shelf.models["coin"] = opened(coin(12))
    assert isinstance(list(playground.compute("me", asked()))[-1], Found)


class Hoarding(Slow):
    """Keeps eight megabytes more at each step."""

    def __init__(self, length: int):
        super().__init__(length)
        self.kept: list[torch.Tensor] = []
        self.gate.set()

    def advance(self, tokens: Any, state: Any) -> Any:
        self.kept.append(torch.ones(MEGABYTE, dtype=torch.float64))
        return super().advance(tokens, state)


def test_a_request_that_fills_the_memory_is_ended() -> None:
    model = Hoarding(12)
    playground = Playground(InMemory(hoarding=opened(model)), Limits(seconds=HOUR, memory=32.0))
    # What the process has may not grow, where earlier tests have left it more than it needs.
    playground.meter = Meter(lambda: 8 * MEGABYTE * len(model.kept))
    with pytest.raises(UserError, match="more than 64 megabytes of memory and was ended: ask for fewer draws"):
        list(playground.compute("me", asked("hoarding", draws=2000)))
    assert len(model.kept) <= 64 / 8 + 2  # at the next step, not at the end
    assert playground.busy == 0


@pytest.mark.skipif(resident() == 0, reason="this system does not say how much memory a process has")
def test_the_memory_of_this_process_is_read() -> None:
    before = resident()
    held = torch.ones(64 * MEGABYTE, dtype=torch.float64)  # half a gigabyte: of its own, not of what is left over
    assert before > 20 * MEGABYTE  # torch alone is more
    assert resident() - before > 400 * MEGABYTE
    assert len(held) == 64 * MEGABYTE


def test_memory_of_a_model_that_is_opened_meanwhile_is_not_the_request_s() -> None:
    has = [100 * MEGABYTE]
    meter = Meter(lambda: has[0])
    allowance = Allowance(HOUR, megabytes=10.0, meter=meter)
    with meter.opening():
        has[0] += 500 * MEGABYTE
        allowance.check()
    allowance.check()
    has[0] += 10 * MEGABYTE
    allowance.check()
    has[0] += 1
    with pytest.raises(UserError, match="10 megabytes"):
        allowance.check()
    allowance.renew()
    allowance.check()
