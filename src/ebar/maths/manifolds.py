"""Classes that lie along curves of the plane: how far a point is from each, draws from them, and two known ones.

Each class is a curve with a width: what lies within `width` of it belongs to the class, and nothing else does. So it is
known of every point of the plane whether it is on the manifold and of which class it is. The two are those of the case
study of Dai 2019 (thesis), C.4, which shows them (Figure C.1) and tells no numbers: these are ours.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.tables import Table

ROWS = 4096  # points at a time: their distances to 4 curves of 100 pieces take 26 MB in float64
PIECES = 100  # straight ones that a curve is made of


class Manifolds(NamedTuple):
    """One curve for each class, each a chain of straight pieces."""

    curves: Float[Tensor, "classes places 2"]
    width: float  # half of it lies on each side

    def distances(self, x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch classes"]:
        """From each point to each curve."""
        start, step = self.curves[:, :-1].to(x), self.curves.diff(dim=1).to(x)
        found = []
        for rows in torch.split(x, ROWS):
            offset = rows[:, None, None] - start
            along = ((offset * step).sum(-1) / step.square().sum(-1)).clamp(0, 1)
            found.append((offset - along[..., None] * step).square().sum(-1).amin(2).sqrt())
        return torch.cat(found)

    def draw(
        self, n: int, generator: Generator
    ) -> tuple[Float[Tensor, "n 2"], Int[Tensor, " n"]]:  # fmt: skip
        """n points and their classes, as equally many as can be: uniform along the curve and across its width."""
        steps = self.curves.diff(dim=1)
        labels = torch.arange(n) % len(self.curves)
        chances = steps.norm(dim=-1)[labels]
        pieces = torch.multinomial(chances, 1, generator=generator)[:, 0] if n else labels
        start, step = self.curves[labels, pieces], steps[labels, pieces]
        along, across = torch.rand(2, n, 1, dtype=start.dtype, generator=generator)
        normal = torch.stack([-step[:, 1], step[:, 0]], 1) / step.norm(dim=1, keepdim=True)
        return start + along * step + (2 * across - 1) * self.width * normal, labels

    def box(self, margin: float = 0.25) -> tuple[Float[Tensor, "2"], Float[Tensor, "2"]]:
        """The corners of a square around all curves, `margin` of its half side further out on each side."""
        reach = float(self.curves.abs().amax()) * (1 + margin)
        corner = torch.full((2,), reach, dtype=self.curves.dtype)
        return -corner, corner


def two_circles() -> Manifolds:
    """Two circles around one centre, of radius 1 and 2."""
    angles = torch.linspace(0, 2 * math.pi, PIECES + 1, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    return Manifolds(torch.stack([circle, 2 * circle]), 0.1)


def four_spins() -> Manifolds:
    """Four arms of a spiral, a quarter turn apart, each of half a turn from radius 0.4 to 2."""
    radii = torch.linspace(0.4, 2.0, PIECES + 1, dtype=torch.float64)
    turn = math.pi * (radii - radii[0]) / (radii[-1] - radii[0])
    angles = turn + torch.arange(4)[:, None] * math.pi / 2
    return Manifolds(torch.stack([radii * angles.cos(), radii * angles.sin()], 2), 0.08)


MANIFOLDS: Table[Any] = Table("manifold", {"two_circles": two_circles, "four_spins": four_spins})
