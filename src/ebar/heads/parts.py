"""Scores of many rows in bounded memory."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def in_parts(
    function: Callable[..., Float[Tensor, "some vocabulary"]], tensors: Sequence[Float[Tensor, "rows ..."]], size: int
) -> Float[Tensor, "rows vocabulary"]:
    """A deterministic function of rows, `size` rows at a time; for a gradient each part is computed once more.

    A single part is kept for its gradient.
    """
    again = torch.is_grad_enabled() and len(tensors[0]) > size
    parts = [
        checkpoint(function, *some, use_reentrant=False, preserve_rng_state=False) if again else function(*some)
        for some in zip(*(torch.split(tensor, size) for tensor in tensors), strict=True)
    ]
    return torch.cat(parts)
