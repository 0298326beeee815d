"""Where a token stands, as a vector: sinusoids (Vaswani et al. 2017, §3.5) or one learnt for each place."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError


class Sinusoidal(nn.Module):
    """sin and cos of wavelengths 2π … 10000·2π, side by side: never learnt, as many places as are asked for."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("table", sinusoids(256, size), persistent=False)

    table: Tensor

    def forward(self, first: Int[Tensor, " rows"] | int, length: int) -> Float[Tensor, "some length size"]:
        """Vectors of `length` places from `first` on: one row for all where it is a number."""
        end = _end(first, length)
        if end > len(self.table):
            self.table = sinusoids(max(end, 2 * len(self.table)), self.size).to(self.table)
        return looked_up(self.table, first, length)


class Learnt(nn.Module):
    """One vector for each place, times √size as the tokens' vectors are."""

    def __init__(self, size: int, places: int):
        super().__init__()
        self.scale = math.sqrt(size)
        self.table = nn.Parameter(torch.randn(places, size) / self.scale)

    def forward(self, first: Int[Tensor, " rows"] | int, length: int) -> Float[Tensor, "some length size"]:
        end = _end(first, length)
        if end > len(self.table):
            raise UserError(
                f"Place {end} was asked for where {len(self.table)} are learnt, beginning and prefix included:"
                " raise maximal_length, or use sinusoidal positions."
            )
        return looked_up(self.table, first, length) * self.scale


def sinusoids(places: int, size: int) -> Float[Tensor, "places size"]:
    """In float32 whatever a model's precision: a table is the same table after a model has changed its own."""
    half = (size + 1) // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(places, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)[:, :size].float()


def _end(first: Int[Tensor, " rows"] | int, length: int) -> int:
    """One past the last place."""
    return length + (first if isinstance(first, int) else int(first.max()) if len(first) else 0)


def looked_up(
    table: Float[Tensor, "places size"], first: Int[Tensor, " rows"] | int, length: int
) -> Float[Tensor, "some length size"]:
    """`length` rows of the table from `first` on, a row of its own for each of several."""
    if isinstance(first, int):
        return table[None, first : first + length]
    return F.embedding(first[:, None] + torch.arange(length, device=first.device), table)
