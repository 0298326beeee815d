"""The complement generator of the plane: everything in a box that is not on the manifold, equally likely."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.bounds import Count, NonNegative
from ebar.errors import UserError
from ebar.maths.manifolds import MANIFOLDS
from ebar.maths.randomness import Law, draw_noise
from ebar.types import Context


class ComplementGenerator(nn.Module):
    """Uniform on a box around the data, those on the manifold left out. Nothing in it learns."""

    law: ClassVar[Law] = "uniform"
    low: Tensor
    high: Tensor

    def __init__(
        self, *, shape: tuple[int, ...], manifold: str = "four_spins", tries: Count = 8, margin: NonNegative = 0.25
    ):
        """Noise is `tries` points of the box, of which a sample is the first that is not on the manifold.

        Where all of them are, it is the last; of 8 that happens less than once in a million. Dai 2019 (thesis), C.4.

        Args:
            shape: Of one x, which is a point of the plane.
            manifold: By name, what is left out.
            tries: Points of the box that a sample is chosen from.
            margin: By how much the box is larger than the curves, in half of its side.
        """
        super().__init__()
        if tuple(shape) != (2,):
            raise UserError("The complement of a manifold of the plane has points of 2 numbers: give such data.")
        self.shape, self.latent, self.tries = (2,), 2 * tries, tries
        self.manifold = MANIFOLDS.choose(manifold)()
        low, high = self.manifold.box(margin)
        self.register_buffer("low", low.to(torch.get_default_dtype()))
        self.register_buffer("high", high.to(torch.get_default_dtype()))

    def forward(self, noise: Float[Tensor, "rows latent"]) -> Float[Tensor, "rows 2"]:
        points = torch.lerp(self.low, self.high, noise.view(len(noise), self.tries, 2))
        chosen, left = points[:, 0].clone(), torch.arange(len(points))
        for number in range(1, self.tries):
            left = left[(self.manifold.distances(chosen[left]) <= self.manifold.width).any(1)]
            if len(left) == 0:
                break
            chosen[left] = points[left, number]
        return chosen

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "n 2"]:  # fmt: skip
        if context is not None:
            raise UserError("A generator of points has no context: leave it out.")
        return self.forward(draw_noise(n, self.latent, self.law, generator=generator).to(self.low))
