"""Classes along curves of the plane: distances by hand, and draws that lie where they should."""

import math

import pytest
import torch
from torch import Generator

from ebar.maths.manifolds import MANIFOLDS, Manifolds, four_spins, two_circles

# Class 0 is an angle, from (0, 0) to (3, 0) and up to (3, 4); class 1 a line above it.
ANGLE = Manifolds(torch.tensor([[[0.0, 0], [3, 0], [3, 4]], [[0.0, 10], [3, 10], [6, 10]]]).double(), 0.5)


def test_distances_by_hand() -> None:
    """Beside a piece, beyond its end (3-4-5), on it, and nearer to the second piece than to the first."""
    points = torch.tensor([[1.0, 2.0], [-3.0, -4.0], [3.0, 1.0], [2.5, 3.0]]).double()
    expected = torch.tensor([[2.0, 8.0], [5.0, math.hypot(3, 14)], [0.0, 9.0], [0.5, 7.0]]).double()
    torch.testing.assert_close(ANGLE.distances(points), expected)


def test_long_pieces_have_more_points() -> None:
    """Of class 0, 3/7 lie along the first piece: 4.5 deviations of a binomial, one false alarm in 150,000 seeds."""
    n = 7000
    x, labels = ANGLE.draw(2 * n, Generator().manual_seed(0))
    own = x[labels == 0]
    assert len(own) == n
    first = int((own[:, 1].abs() <= 0.5).logical_and(own[:, 0] < 2.5).sum())  # as 2.5/7: the corner is left out
    share = 2.5 / 7
    assert abs(first - n * share) < 4.5 * math.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_points_are_on_their_own_curve_and_far_from_the_others(name: str) -> None:
    found = MANIFOLDS[name]()
    x, labels = found.draw(1000, Generator().manual_seed(0))
    assert torch.equal(labels.bincount(), torch.full((len(found.curves),), 1000 // len(found.curves)))
    distances = found.distances(x)
    own = distances.gather(1, labels[:, None])
    assert float(own.max()) <= found.width * (1 + 1e-9)
    assert float(own.mean()) == pytest.approx(found.width / 2, rel=0.1)  # uniform across
    others = distances.scatter(1, labels[:, None], math.inf)
    assert float(others.min()) > 4 * found.width
    low, high = found.box()
    assert bool(((x > low) & (x < high)).all())


def test_circles_are_round_and_spins_alike() -> None:
    """A chain of 100 pieces leaves a circle of radius 2 by 2·(1 − cos π/100), a thousandth."""
    x = torch.tensor([[0.0, 1.0], [-2.0, 0.0], [0.0, 0.0]]).double()
    torch.testing.assert_close(
        two_circles().distances(x), torch.tensor([[0, 1], [1, 0], [1, 2]]).double(), atol=1e-3, rtol=0
    )
    curves = four_spins().curves
    torch.testing.assert_close(curves[1], torch.stack([-curves[0, :, 1], curves[0, :, 0]], 1))  # a quarter turn
    torch.testing.assert_close(curves[0, 0], torch.tensor([0.4, 0.0]).double())
    torch.testing.assert_close(curves[0, -1], torch.tensor([-2.0, 0.0]).double())


def test_points_lie_on_both_sides_of_their_curve() -> None:
    """Of 2000 on a circle of radius 1, half within it: 4.5 deviations of a binomial, one false alarm in 150,000."""
    x, labels = two_circles().draw(4000, Generator().manual_seed(0))
    within = int((x[labels == 0].norm(dim=1) < 1).sum())
    assert abs(within - 1000) < 4.5 * math.sqrt(500) + 2000 * 1e-2  # a chord lies a little within the circle


def test_no_points_are_none() -> None:
    assert ANGLE.draw(0, Generator())[0].shape == (0, 2)
