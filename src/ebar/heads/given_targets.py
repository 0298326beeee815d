"""log softmax(W·v + b) of given targets, in memory that does not grow with rows × vocabulary.

Logits exist only as tiles that stay in the processor's cache: the forward pass keeps each row's normaliser, the
backward pass computes each tile once more and turns it in place into probabilities. So a gradient costs four matrix
products where the dense one costs three, and neither logits nor their gradient are ever held.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

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
