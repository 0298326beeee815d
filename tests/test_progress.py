"""A progress bar shows rate and time left, and leaves no trace in a run's results."""

import subprocess
import sys

import pytest

from ebar.progress import bar, shown


def test_a_bar_is_drawn_only_where_bars_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("quiet", 2, "steps") as progress:
        progress.advance(2)
    assert capsys.readouterr().err == ""
    with shown(), bar("loud", 2, "steps") as progress:
        progress.advance(2)
    drawn = capsys.readouterr().err
    assert "loud" in drawn
    assert "2/2" in drawn
    assert "steps/s" in drawn or "–" in drawn


def test_drawing_a_first_bar_does_not_touch_pythons_own_random_state() -> None:
    code = """
import random, sys
from ebar.progress import bar, shown
random.seed(0)
before = random.getstate()
assert "rich" not in sys.modules
with shown(), bar("training", 5, "steps") as progress:
    progress.advance(5)
assert "rich.style" in sys.modules
assert random.getstate() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
