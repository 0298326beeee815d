"""What makes a row ready to be shown: over what its interval is, within what its figure can be."""

import math

import pytest

from ebar.recipes.gam.cells import departures
from ebar.recipes.gam.data_efficiency import RECIPE as DATA_EFFICIENCY
from ebar.recipes.gam.tables import TABLE2
from ebar.recipes.recipe import Caption, Row
from ebar.recipes.render import apart, cut_off, row_from, seeds_of, settled, within

CELLS = [{"size": size, "seed": seed} for size, seeds in ((500, 3), (50, 1)) for seed in range(seeds)]
READING = Caption(items="2,000 draws, one training", ranges={"frequency": (0.0, 1.0), "distance": (0.0, math.inf)})


def row(name: str, low: float, value: float, high: float, size: int = 500) -> Row:
    return Row(name=name, settings={"size": size}, value=value, low=low, high=high)


def test_the_runs_of_a_row_are_counted_by_the_settings_it_names() -> None:
    assert seeds_of(row("frequency", 0.0, 0.5, 1.0), CELLS) == 3
    assert seeds_of(row("frequency", 0.0, 0.5, 1.0, size=50), CELLS) == 1
    assert seeds_of(Row(name="a", settings={"size": 500, "seed": 2}, value=1.0, low=None, high=None), CELLS) == 1


def test_every_kind_of_interval_says_what_it_is_over() -> None:
    rows = [
        row("frequency", 0.5, 0.8, 1.09), row("frequency", 0.5, 0.8, 0.9, size=50), row("cost", 2.0, 2.0, 2.0),
        row("cost", 2.0, 2.0, 2.0, size=50), Row(name="text", value=None, low=None, high=None),
    ]  # fmt: skip
    shown = settled(rows, CELLS, READING)
    assert [one.over for one in shown] == [
        "3 seeds", "2,000 draws, one training", "the same in all 3 seeds", "exact, one training", None
    ]  # fmt: skip
    assert settled(shown, CELLS, READING) == shown
    assert settled(rows, CELLS, Caption())[1].over is None  # then the tests of all recipes and all pages fail


@pytest.mark.parametrize(
    ("name", "ends", "kept"),
    [
        ("frequency", (0.5276, 1.09), (0.5276, 1.0)),
        ("frequency", (-0.003, 0.013), (0.0, 0.013)),
        ("distance", (-0.0008, 0.05), (0.0, 0.05)),
        ("frequency", (0.2, 0.9), (0.2, 0.9)),
        ("difference", (-0.4, 0.1), (-0.4, 0.1)),
    ],
)
def test_an_interval_is_cut_off_where_its_figure_ends(
    name: str, ends: tuple[float, float], kept: tuple[float, float]
) -> None:
    found = within(row(name, ends[0], sum(kept) / 2, ends[1]), READING.ranges.get(name))
    assert (found.low, found.high) == kept
    assert cut_off(settled([found], CELLS, READING), READING) == (ends != kept)


def test_what_json_has_no_number_for_is_read_back() -> None:
    tree = {"name": "λ", "settings": {}, "value": 0.0, "low": "-inf", "high": "inf", "document": "0", "warning": None}
    found = row_from(tree)
    assert (found.low, found.high, found.document) == (-math.inf, math.inf, "0")


def test_settings_that_differ_from_those_of_scale_paper_are_listed() -> None:
    ours = [{"epochs": 40, "seed": 0, "earm": {"weight": 0.05}}, {"epochs": 20, "seed": 1, "earm": {"weight": 0.05}}]
    paper = [{"epochs": 130, "seed": 0, "earm": {"weight": 0.05, "window": 50}}]
    assert apart(ours, paper) == [
        "Settings that are not those of scale paper (in brackets): epochs 40 / 20 (130); earm.window – (50)."
    ]
    assert apart(ours, [ours[0], {**ours[1], "seed": 5}]) == []


def test_at_scale_paper_the_authors_models_are_stopped_when_theirs_are() -> None:
    assert departures(TABLE2.grid("paper")) == []
    [note] = departures(TABLE2.grid("cpu"))
    assert note.startswith("π by the authors' settings is stopped after 60 epochs")
    assert departures(DATA_EFFICIENCY.grid("paper")) == []
    # The paper's r is the authors' there, its π ours.
    assert [note[0] for note in departures(DATA_EFFICIENCY.grid("cpu"))] == ["r"]
