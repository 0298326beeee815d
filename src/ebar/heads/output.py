"""The last layer of a head: a score for each token, by weights of its own or by the backbone's input vectors.

Scores of many rows in bounded memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ebar.heads.given_targets import linear_log_probs


def output_layer(size: int, vocabulary: int, embedding: Any, *, tied: bool) -> "nn.Linear | Tied":
    """W·v + b: W uniform in ±0.1 or the input vectors, b zero at first."""
    if tied:
        return Tied(embedding, vocabulary, size)
    layer = nn.Linear(size, vocabulary)
    nn.init.uniform_(layer.weight, -0.1, 0.1)
    nn.init.zeros_(layer.bias)
    return layer


class Tied(nn.Module):
    """W·v + b, W being the input vectors of the tokens (Press & Wolf 2017, arXiv:1608.05859; Inan et al. 2017).

    The parameter is shared, not copied: it is one of the backbone's and one of the head's, learnt once. It may have
    rows after those of the tokens, for the beginning of a text; they are no tokens that could be predicted.
    """

    def __init__(self, embedding: Any, vocabulary: int, size: int):
        super().__init__()
        if tied_size(embedding) != size:
            raise ValueError(
                f"the backbone's input vectors have {tied_size(embedding)} dimensions and the head's {size}: tied, "
                "they must have the same, so change one of the sizes or leave tied out"
            )
        self.weight = embedding
        self.bias = nn.Parameter(embedding.new_zeros(vocabulary))

    def forward(self, vectors: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch vocabulary"]:
        return F.linear(vectors, self.weight[: len(self.bias)], self.bias)


def tied_size(embedding: Any) -> int:
    """Of the vectors that a tied head has; without one table of them there is nothing to tie to."""
    if embedding is None:
        raise ValueError(
            "the backbone learns no input vectors that it could be tied to: choose one that does (an lstm learns them "
            "if it is given the size of an embedding), or leave tied out"
        )
    if not isinstance(embedding, Tensor):
        raise ValueError("input vectors of several sizes tie to the adaptive head only: choose that, or leave tied out")
    return embedding.shape[1]


def chosen_size(size: int | None, otherwise: int, embedding: Any, *, tied: bool) -> int:
    """Of the output layer's vectors: as given, else the input vectors' where tied, else what the head has by itself."""
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return size or (tied_size(embedding) if tied else otherwise)


def layer_log_probs(
    layer: "nn.Linear | Tied", vectors: Float[Tensor, "*batch size"], targets: Tensor
) -> Float[Tensor, "*batch"]:
    """log softmax(W·v + b) of the targets, without holding the logits."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    return linear_log_probs(flat, layer.weight, layer.bias, targets.reshape(-1)).view(targets.shape)


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
