"""Dropout from 16 random bits an element, where torch draws 64: on a CPU drawing is what it costs."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

LEVELS = 1 << 16


def dropped(x: Float[Tensor, "*shape"], probability: float, training: bool) -> Float[Tensor, "*shape"]:
    """0 with the probability, rounded to 1/65,536, and otherwise x over that of being kept: the mean is x."""
    if not training or probability == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    threshold = round(probability * LEVELS)
    count = x.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[:count].view(x.shape)
    kept = (bits >= threshold - LEVELS // 2).to(x.dtype)
    return x * kept.mul_(LEVELS / (LEVELS - threshold))
