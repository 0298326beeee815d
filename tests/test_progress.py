"""Progress shows rate and time left, of the whole journey too, and leaves no trace in a run's results."""

import subprocess
import sys

import pytest

from ebar import progress
from ebar.progress import bar, shown


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "_clock", found)
    return found


def test_a_bar_is_drawn_only_where_bars_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("quiet", 2, "steps") as one:
        one.advance(2)
    assert capsys.readouterr().err == ""
    with shown(), bar("loud", 2, "steps") as one:
        one.advance(2)
    drawn = capsys.readouterr().err
    assert "loud" in drawn
    assert "2/2" in drawn
    assert "steps/s" in drawn or "–" in drawn


def test_without_a_terminal_a_line_is_written_every_so_often(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """2 steps a second, of 200: after 30 s 60 are done, and 140 are 70 s away."""
    with shown(), bar("training", 200, "steps") as one:
        for _ in range(100):
            clock.now += 0.5
            one.advance(1)
        assert capsys.readouterr().err == "training: 60/200, 2.0 steps/s, 0:00:30 gone, 0:01:10 left\n"
    assert capsys.readouterr().err == "training: 100/200, 2.0 steps/s, 0:00:50 gone\n"


def test_the_time_left_is_that_of_the_whole_journey_too(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1 + 2 + 7 units of work, the first was made before, and half of the second takes 40 s: 8 more take 320 s."""
    with shown(), progress.journey({"before": 1.0, "now": 2.0, "later": 7.0}):
        with progress.part("before"):
            pass
        with progress.part("now"), bar("drawing", 10, "draws") as one:
            clock.now += 40
            one.advance(5)
            assert capsys.readouterr().err.endswith("0:00:40 left, of the whole about 0:05:20\n")
            with bar("inside", 4, "steps") as other:  # a bar within a bar does not speak for the part
                other.advance(4)
            assert "inside" in capsys.readouterr().err
            clock.now += 40
            one.advance(5)
            assert capsys.readouterr().err.endswith("0:00:00 left, of the whole about 0:04:40\n")
        with progress.part("later"), bar("training", 7, "steps") as one:
            clock.now += 60  # slower than before: 3 units took 140 s, so that 6 more take 280 s
            one.advance(1)
            assert capsys.readouterr().err.endswith("0:06:00 left, of the whole about 0:04:40\n")


def test_a_journey_within_a_journey_is_part_of_it(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    outer = progress.journey({"outer": 1.0, "rest": 1.0})
    inner = progress.journey({"inner": 1.0})
    with shown(), outer, progress.part("outer"), inner, progress.part("inner"), bar("inside", 2, "steps") as one:
        clock.now += 30
        one.advance(1)
    assert "0:00:30 left, of the whole about 0:01:30" in capsys.readouterr().err


def test_drawing_a_first_bar_does_not_touch_pythons_own_random_state() -> None:
    code = """
import random, sys
from ebar.progress import bar, shown
random.seed(0)
before = random.getstate()
assert "rich" not in sys.modules
sys.stderr.isatty = lambda: True
with shown(), bar("training", 5, "steps") as progress:
    progress.advance(5)
assert "rich.style" in sys.modules
assert random.getstate() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_forecast_is_the_trial_times_as_much(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """10 take 2 seconds, so 3,000 take 600; where nothing is shown nothing is tried."""
    tried = []

    def work(amount: int) -> None:
        tried.append(amount)
        clock.now += 2.0

    progress.forecast("distilling", 3000, 10, work)
    assert tried == []
    with shown():
        progress.forecast("distilling", 3000, 10, work)
        progress.forecast("distilling", 30, 0, work)  # too little to be tried
    assert tried == [10]
    assert capsys.readouterr().err == "distilling: about 0:10:00 for 3,000, to judge by a trial of 10\n"
