"""The mean of a cost along one long text, whose tokens are not independent."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.moments import weighted_mean
from ebar.types import Estimate

BLOCKS = 30  # of a text, whose means tell the spread


def block_mean(
    costs: Float[Tensor, " tokens"], *, blocks: int = BLOCKS, low: float = -math.inf, level: float = 0.95
) -> Estimate:
    """The mean along a text, its interval over contiguous blocks as if they were independent (batch means).

    Neighbouring tokens are not independent, so an interval over tokens would be too short; means of long blocks nearly
    are, and Student's t allows for their small number. What holds longer than a block (a text of one author) is not
    in the interval: it is about this text's like, not about all texts.
    """
    if not 2 <= blocks <= len(costs):
        raise UserError(f"{len(costs):,} tokens cannot be cut into {blocks} blocks: give a longer text.")
    parts = torch.tensor_split(costs.double(), blocks)
    sizes = torch.tensor([len(part) for part in parts], dtype=torch.float64)
    means = torch.stack([part.mean() for part in parts])
    return weighted_mean(sizes.log()[None], means.cpu()[None], low=low, name="cost", batches=True, level=level)[0]
