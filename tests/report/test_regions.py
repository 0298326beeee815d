from xml.etree import ElementTree

import pytest

from ebar.report.regions import Plane, plot_planes

pytest.importorskip("matplotlib", reason="needs matplotlib")

CORNERS: dict[str, tuple[float, float]] = {"low": (-1.0, -1.0), "high": (1.0, 1.0)}
CLASSES = [[0, 0, 1], [0, 2, 2], [0, 2, 2]]
ENERGIES = [[-1.0, 1.0, -1.0], [-1.0, 2.0, 1.0], [-3.0, 1.0, -1.0]]


def plane(**parts: object) -> str:
    return plot_planes([[Plane(title="plane", **CORNERS, **parts)]])  # type: ignore[arg-type]


def test_the_same_planes_give_the_same_file(tmp_path):
    whole = Plane(
        title="whole", **CORNERS, classes=CLASSES, energies=ENERGIES, unlabelled=[(0.0, 0.1)], generated=[(0.5, 0.5)],
        labelled={2: [(0.9, 0.9)]}, members={0: [(-0.5, 0.0)]},
    )  # fmt: skip
    first = plot_planes([[whole, whole], [whole]], tmp_path / "plot.svg")
    assert plot_planes([[whole, whole], [whole]]) == first == (tmp_path / "plot.svg").read_text()
    assert ElementTree.fromstring(first).tag.endswith("svg")


def test_each_part_is_seen():
    plots = [
        plane(), plane(classes=CLASSES), plane(energies=ENERGIES), plane(classes=CLASSES, energies=ENERGIES),
        plane(unlabelled=[(0.0, 0.0)]), plane(generated=[(0.0, 0.0)]), plane(labelled={1: [(0.0, 0.0)]}),
        plane(labelled={0: [(0.0, 0.0)]}), plane(members={1: [(0.0, 0.0)]}),
    ]  # fmt: skip
    assert len(set(plots)) == len(plots)


def test_the_line_between_true_and_fake_is_white_on_classes_and_black_alone():
    assert "stroke: #ffffff" in plane(classes=CLASSES, energies=ENERGIES)
    assert "stroke: #ffffff" not in plane(energies=ENERGIES)
    believed = [[-1.0] * 3] * 3  # all of it true: no line, and no warning of an empty contour
    assert "stroke: #ffffff" not in plane(classes=CLASSES, energies=believed)
