"""How long the sequence is."""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.reading import Reading
from ebar.features.accepted import UnboundError
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True)
class Length:
    """The number of tokens, the end token included; it takes no argument.

    `longest`, the length of the space, is its upper bound.
    """

    _: KW_ONLY
    longest: int | None = None
    end: int | None = None

    name = "length"

    @property
    def low(self) -> float:
        return 0.0 if self.end is None else 1.0

    @property
    def high(self) -> float:
        return math.inf if self.longest is None else float(self.longest)

    def bind(self, reading: Reading) -> "Length":
        return self if self.longest is not None else Length(longest=reading.longest, end=reading.end)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.longest is None:
            raise UnboundError(self.name)
        return x.lengths.to(torch.float64)
