"""The complement generator: all of the box but the manifold, equally likely, and nothing to learn."""

import math

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.maths.manifolds import MANIFOLDS
from ebar.models.generators import ComplementGenerator, ImplicitGenerator
from ebar.types import Context, Sequences


def test_the_first_point_that_is_not_on_the_manifold_by_hand() -> None:
    """The box goes from −2.5 to 2.5. On the circle of radius 1, on that of radius 2, then in between."""
    made = ComplementGenerator(shape=(2,), manifold="two_circles", tries=3)
    tries = torch.tensor([[1.0, 0.0], [0.0, 2.05], [1.5, 0.0]])
    noise = ((tries + 2.5) / 5).flatten()[None]
    torch.testing.assert_close(made(noise), torch.tensor([[1.5, 0.0]]))
    torch.testing.assert_close(made(noise.view(3, 2).flip(0).flatten()[None]), torch.tensor([[1.5, 0.0]]))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_it_is_uniform_off_the_manifold(name: str) -> None:
    """Counts in sixteen cells against those of plain draws of the box: 4.5 deviations each, 1 false alarm in 9,000."""
    made = ComplementGenerator(shape=(2,), manifold=name)
    assert isinstance(made, ImplicitGenerator)
    assert not list(made.parameters())
    n = 4000
    drawn = made.sample(n, generator=Generator().manual_seed(0))
    manifold = MANIFOLDS[name]()
    assert bool((manifold.distances(drawn) > manifold.width).all())
    box = torch.lerp(made.low, made.high, torch.rand(n, 2, generator=Generator().manual_seed(1)))
    box = box[(manifold.distances(box) > manifold.width).all(1)]
    shares, expected = (cells(x, made) / len(x) for x in (drawn, box))
    deviation = (expected * (1 - expected) * (1 / n + 1 / len(box))).sqrt()
    assert bool(((shares - expected).abs() < 4.5 * deviation).all())


def cells(x: torch.Tensor, made: ComplementGenerator) -> torch.Tensor:
    column, row = ((x - made.low) / (made.high - made.low) * 4).floor().long().unbind(1)
    return (4 * row + column).bincount(minlength=16).double()


def test_where_every_try_is_on_the_manifold_the_last_is_taken() -> None:
    made = ComplementGenerator(shape=(2,), manifold="two_circles", tries=2)
    noise = (torch.tensor([[1.0, 0.0, 0.0, 1.0]]) + 2.5) / 5
    torch.testing.assert_close(made(noise), torch.tensor([[0.0, 1.0]]))


def test_it_is_of_the_plane_and_of_no_context() -> None:
    with pytest.raises(UserError, match="points of 2 numbers"):
        ComplementGenerator(shape=(1, 28, 28))
    with pytest.raises(UserError, match="manifold"):
        ComplementGenerator(shape=(2,), manifold="three_rings")
    context = Context(Sequences(torch.zeros(1, 1).long(), torch.ones(1).long()))
    with pytest.raises(UserError, match="no context"):
        ComplementGenerator(shape=(2,)).sample(1, context, generator=Generator())
    assert math.isclose(float(ComplementGenerator(shape=(2,), margin=0.0).high[0]), 2.0)
