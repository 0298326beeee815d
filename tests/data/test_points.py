"""Points from mixtures and from files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ebar.data import read_points
from ebar.data.points import PointsData
from ebar.errors import UserError
from ebar.models.points import mixture


def test_a_mixture_gives_three_parts_that_its_name_repeats():
    data = read_points(mixture="biased_gaussians", size=20_000)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [20_000, 2000, 2000]
    assert data.train.dtype == torch.float32
    assert data.space.shape == (2,)
    assert data.mixture == "biased_gaussians"
    assert torch.equal(data.train, PointsData(mixture="biased_gaussians", size=20_000).read(seed=5).train)
    assert not torch.equal(data.train, read_points(mixture="biased_gaussians", size=20_000, draw_seed=1).train)
    truth = mixture("biased_gaussians")
    # Six standard errors of a mean over 20,000: one false alarm in 250 million for each of the two coordinates.
    assert bool(((data.train.mean(0) - truth.mean()).abs() < 6 * (truth.variance() / 20_000).sqrt()).all())


@pytest.mark.parametrize("name", ["points.csv", "points.txt", "points.npz"])
def test_a_file_is_cut_into_parts_without_a_point_in_common(tmp_path: Path, name: str):
    points = np.arange(60, dtype=np.float64).reshape(20, 3)
    if name.endswith("npz"):
        np.savez(tmp_path / name, points=points, other=points)
    else:
        lines = ["a, b, c"] + [",".join(map(str, row)) for row in points.tolist()] + [""]
        (tmp_path / name).write_text("\n".join(lines))
    data = read_points(tmp_path / name)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [16, 2, 2]
    together = torch.cat([data.train, data.validation, data.test])
    assert sorted(together[:, 0].tolist()) == points[:, 0].tolist()
    assert data.mixture is None
    assert torch.equal(read_points(tmp_path / name).test, data.test)
    other = read_points(tmp_path / name, seed=1)
    assert not torch.equal(other.train, data.train)


def test_parts_of_their_own_files_are_taken_whole(tmp_path: Path):
    for part, rows in (("train", 5), ("validation", 3), ("test", 2)):
        np.savez(tmp_path / f"{part}.npz", np.full((rows, 2), rows))
    data = read_points(tmp_path / "train.npz", validation=tmp_path / "validation.npz", test=tmp_path / "test.npz")
    assert [len(part) for part in (data.train, data.validation, data.test)] == [5, 3, 2]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2\n3\n", "Line 2 of .* has 1 numbers, the lines before it 2"),
        ("1 2\nx y\n", "Line 2 of .* is no row of numbers: 'x y'"),
        ("1 2\ninf 0\n", "Point 2 of .* is not finite"),
        ("", r"holds float64 of shape \(0,\): points are numbers, one point per row"),
        ("1 2\n", "has only 1 points: give more"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, text: str, sentence: str):
    (tmp_path / "points.txt").write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_points(tmp_path / "points.txt")


def test_what_else_cannot_be_read_is_one_sentence(tmp_path: Path):
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    np.savez(tmp_path / "words.npz", np.array([["a", "b"]]))
    np.savez(tmp_path / "objects.npz", np.array([[{}]], dtype=object))
    np.savez(tmp_path / "line.npz", np.zeros(4))
    np.savez(tmp_path / "plane.npz", np.zeros((9, 2)))
    np.savez(tmp_path / "space.npz", np.zeros((9, 3)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "plane.npz").read_bytes()[:100])
    for name, sentence in {
        "two.npz": "call its array of points 'points'",
        "words.npz": "points are numbers",
        "objects.npz": "is not a readable .npz archive of numbers",
        "line.npz": "one point per row",
        "cut.npz": "is not a readable .npz archive of numbers",
        "none.npz": "There is no file",
    }.items():
        with pytest.raises(UserError, match=sentence):
            read_points(tmp_path / name)
    with pytest.raises(UserError, match="points of 3 numbers, the training points have 2"):
        read_points(tmp_path / "plane.npz", test=tmp_path / "space.npz")
    for options, sentence in (
        ({}, "give one"),
        ({"mixture": "moons"}, "no mixture called 'moons': choose one of"),
        ({"mixture": "spirals", "size": 0}, "size must be 1 or more"),
        ({"mixture": "spirals", "test": "x.csv"}, "leave the validation and test files out"),
    ):
        with pytest.raises(UserError, match=sentence):
            read_points(**options)
