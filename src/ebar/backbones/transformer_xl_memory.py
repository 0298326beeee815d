"""What a Transformer-XL carries: between segments the layers' inputs, between steps their keys and values."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class SegmentMemory(NamedTuple):
    """The inputs of each layer in the last places that were read, without gradient.

    Inputs, not keys: the next segment makes keys of them with the weights of that time, which so have a gradient.
    """

    hidden: Float[Tensor, "rows layers places width"]
    valid: Int[Tensor, " rows"]
    """How many of the places hold something; they are the last ones."""

    def appended(self, inputs: list[Float[Tensor, "rows length width"]]) -> "SegmentMemory":
        """The last places of what is remembered and of what was read now."""
        places, length = self.hidden.shape[2], inputs[0].shape[1]
        if places == 0:
            return self
        new = torch.stack([layer.detach()[:, -places:] for layer in inputs], 1)
        hidden = torch.cat([self.hidden[:, :, length:], new], 2) if length < places else new
        return SegmentMemory(hidden, (self.valid + length).clamp(max=places))


class TransformerXlState(NamedTuple):
    """Keys and values of the last places, layer by layer; all that the next place sees but itself."""

    memory: tuple[Float[Tensor, "rows places 2 heads size"], ...]
    place: Int[Tensor, " rows"] | int
    """How many tokens have been read, beginning and prefix included; a number where all rows have read as many.

    Where it is less than there are places, the first of them hold nothing. Below 0, so much padding is still to come.
    """
    segment: Int[Tensor, " rows"] | int | None = None
    """Within a segment, `place` where it began: all that is remembered is seen, and nothing is forgotten. None: there
    are no segments, and each place sees as many others."""

    def select(self, rows: Int[Tensor, " selected"]) -> "TransformerXlState":
        place, segment = (part[rows] if isinstance(part, Tensor) else part for part in (self.place, self.segment))
        assert place is not None
        return TransformerXlState(tuple(layer[rows] for layer in self.memory), place, segment)

    @property
    def seen(self) -> int:
        """Places in memory."""
        return self.memory[0].shape[1] if self.memory else 0

    def first(self) -> Int[Tensor, " rows"] | None:
        """The first place of each row that holds something, in memory or in what comes after. None: all do."""
        if isinstance(self.place, int):
            return None
        first = (self.seen - self.place).clamp(min=0)
        return first if bool(first.any()) else None
