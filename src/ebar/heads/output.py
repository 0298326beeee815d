"""The last layer of a head: a score for each token, by weights of its own or by the backbone's input vectors.

Scores of many rows in bounded memory.

log softmax(W·v + b) of given targets, in memory that does not grow with rows × vocabulary.

Logits exist only as tiles that stay in the processor's cache: the forward pass keeps each row's normaliser, the
backward pass computes each tile once more and turns it in place into probabilities. So a gradient costs four matrix
products where the dense one costs three, and neither logits nor their gradient are ever held.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ebar.devices import in_full_precision

ROWS, WORDS = 512, 1024  # of a tile: two megabytes of float32


def linear_log_probs(
    vectors: Float[Tensor, "rows size"],
    weight: Float[Tensor, "words size"],
    bias: Float[Tensor, " vocabulary"],
    targets: Int[Tensor, " rows"],
) -> Float[Tensor, " rows"]:
    """log softmax(W·v + b)ₜ for each row's target t.

    `weight` may have more rows than the vocabulary, as input vectors have for the beginning: they are no words, and
    have gradient 0. There is no second derivative.
    """
    return _LogProbs.apply(vectors, weight, bias, targets)  # type: ignore[no-any-return, no-untyped-call]


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        logit = torch.empty_like(vectors[:, 0])
        log_partition = torch.empty_like(logit)
        tiles = list(_blocks(len(bias), WORDS))
        for rows in _blocks(len(vectors), ROWS):
            some, target = vectors[rows], targets[rows, None]
            parts = some.new_empty(len(some), len(tiles))
            for number, words in enumerate(tiles):
                logits = torch.addmm(bias[words], some, weight[words].T)
                torch.logsumexp(logits, 1, out=parts[:, number])
                here = target - words.start
                picked = logits.gather(1, here.clamp(0, logits.shape[1] - 1))[:, 0]
                inside = (here >= 0) & (here < logits.shape[1])
                logit[rows] = torch.where(inside[:, 0], picked, logit[rows])
            torch.logsumexp(parts, 1, out=log_partition[rows])
        ctx.save_for_backward(vectors, weight, bias, targets, log_partition)
        return logit - log_partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """gradient·(one-hot of the target − softmax), times what the logits are made of."""
        vectors, weight, bias, targets, log_partition = ctx.saved_tensors
        of_vectors, of_weight, of_bias = (
            torch.zeros_like(one) if wanted else None
            for one, wanted in zip((vectors, weight, bias), ctx.needs_input_grad[:3], strict=True)
        )
        for rows in _blocks(len(vectors), ROWS):
            some, scale, target = vectors[rows], gradient[rows], targets[rows]
            scaled = some * scale[:, None]  # here, not on the tile, which is larger
            for words in _blocks(len(bias), WORDS):
                chances = torch.addmm(bias[words], some, weight[words].T)
                chances.sub_(log_partition[rows, None]).exp_()
                if of_vectors is not None:
                    of_vectors[rows].addmm_(chances, weight[words], alpha=-1)
                if of_weight is not None:
                    of_weight[words].addmm_(chances.T, scaled, alpha=-1)
                if of_bias is not None:
                    of_bias[words].addmv_(chances.T, scale, alpha=-1)
            if of_vectors is not None:
                of_vectors[rows].add_(weight[target]).mul_(scale[:, None])
            if of_weight is not None:
                of_weight.index_add_(0, target, scaled)
            if of_bias is not None:
                of_bias.index_add_(0, target, scale)
        return of_vectors, of_weight, of_bias, None


def _blocks(count: int, size: int) -> Iterator[slice]:
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


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


class OneSoftmax(nn.Module):
    """softmax(W·v + b), v being made of the hidden vector."""

    free_logits = True
    linear: nn.Linear | Tied

    def vectors(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch size"]:
        """The hidden vectors as they are, unless a head says otherwise."""
        return hidden

    @in_full_precision
    def forward(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        return self.linear(self.vectors(hidden))  # type: ignore[no-any-return]

    @in_full_precision
    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Of the targets, without holding the logits."""
        return layer_log_probs(self.linear, self.vectors(hidden), targets)
