"""How long the sequence is."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The number of tokens, the end token included; `longest` is the space's length, which bounds it."""

    longest: int
    end: int | None

    name = "length"

    @property
    def low(self) -> float:
        return 0.0 if self.end is None else 1.0

    @property
    def high(self) -> float:
        return float(self.longest)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return x.lengths.to(torch.float64)
