"""Relative positions: attention that depends on how far a key lies from a query, not on where both stand.

Dai et al. 2019, §3.3 (arXiv:1901.02860).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor


def relative_sinusoids(distances: Float[Tensor, " some"], size: int) -> Float[Tensor, "some size"]:
    """R: sines, then cosines, of distance / 10000^(2i/size) for i = 0 … size/2 − 1.

    Not the frequencies of `transformer_layer.sinusoids`, whose last wavelength is exactly 10000·2π. They are rounded to
    float32 whatever the precision, as the original's are: a model that changes its own keeps its positions.
    """
    frequencies = 1 / 10_000 ** (torch.arange(0, size, 2, dtype=torch.float32, device=distances.device) / size)
    angles = distances[:, None] * frequencies.to(distances.dtype)
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :size]


def relative_shift(scores: Shaped[Tensor, "*batch queries distances"]) -> Shaped[Tensor, "*batch queries distances"]:
    """From scores by distance to scores by key, in time linear in their number.

    Column c of the scores belongs to distance `distances` − 1 − c. The last query stands at the last key, so that
    row i is moved to the left by queries − 1 − i columns. What then stands right of a query's own place is of
    another row: mask it.
    """
    queries, distances = scores.shape[-2:]
    padded = F.pad(scores, (1, 0)).reshape(*scores.shape[:-2], distances + 1, queries)
    return padded[..., 1:, :].reshape(scores.shape)
