from xml.etree import ElementTree

import pytest

from ebar.report.contours import Field, plot_fields

pytest.importorskip("matplotlib", reason="needs matplotlib")

ENERGIES = [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]


def field(title: str, shift: float = 0.0, **points: list[tuple[float, float]]) -> Field:
    moved = [[one + shift for one in row] for row in ENERGIES]
    return Field(title=title, low=(0.0, 0.0), high=(2.0, 2.0), energies=moved, points=points)


def test_the_same_fields_give_the_same_file(tmp_path):
    rows = [[field("one"), field("two", generated=[(1.0, 1.0)], real=[(0.5, 0.5)])], [field("three")]]
    first = plot_fields(rows, tmp_path / "plot.svg")
    assert plot_fields(rows) == first == (tmp_path / "plot.svg").read_text()
    assert ElementTree.fromstring(first).tag.endswith("svg")


def test_a_constant_changes_nothing_and_another_energy_does():
    assert plot_fields([[field("one")]]) == plot_fields([[field("one", shift=100.0)]])
    other = Field(title="one", low=(0.0, 0.0), high=(2.0, 2.0), energies=[*ENERGIES[:2], [5.0, 6.0, 12.0]])
    assert plot_fields([[field("one")]]) != plot_fields([[other]])


def test_points_alone():
    alone = Field(title="points", low=(0.0, 0.0), high=(1.0, 1.0), points={"real": [(0.5, 0.5)]})
    assert "svg" in plot_fields([[alone]])
