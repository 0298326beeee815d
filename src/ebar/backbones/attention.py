"""Attention of several heads: softmax(q·kᵀ/√size)·v for each. Vaswani et al. 2017, equation 1.

Axes: keys and values of a place stand side by side, [rows, places, 2, heads, size], as one matrix product leaves them.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attend(
    query: Float[Tensor, "rows length heads size"], memory: Float[Tensor, "rows places 2 heads size"],
    mask: Bool[Tensor, "some_rows 1 some_length places"] | None = None, *, causal: bool = False,
) -> Float[Tensor, "rows length width"]:  # fmt: skip
    """`causal`: queries and keys are the same places, and each sees itself and those before it."""
    keys, values = memory.permute(2, 0, 3, 1, 4)
    seen = F.scaled_dot_product_attention(query.transpose(1, 2), keys, values, mask, is_causal=causal)
    return seen.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Queries, keys and values from one product."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.into = linear(width, 3 * width, bound=math.sqrt(3 / width))  # each of the three as Glorot has it
        self.out = linear(width, width)

    def forward(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before 2 heads size"] | None,
        mask: Bool[Tensor, "some_rows 1 some_length places"] | None = None, *, causal: bool = False,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        """What is seen among the memory and the inputs, and the memory with the inputs."""
        together = self.into(inputs).unflatten(2, (3, self.heads, self.size))
        memory = together[:, :, 1:] if memory is None else torch.cat([memory, together[:, :, 1:]], 1)
        return self.out(attend(together[:, :, 0], memory, mask, causal=causal)), memory


class CrossAttention(nn.Module):
    """Queries from one sequence; keys and values from another, computed once by `remember`."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = linear(width, width)
        self.memory = linear(width, 2 * width, bound=math.sqrt(3 / width))
        self.out = linear(width, width)

    def remember(self, read: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places 2 heads size"]:
        return self.memory(read).unflatten(2, (2, self.heads, self.size))  # type: ignore[no-any-return]

    def forward(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows places 2 heads size"],
        mask: Bool[Tensor, "rows 1 1 places"] | None,
    ) -> Float[Tensor, "rows length width"]:  # fmt: skip
        query = self.query(inputs).unflatten(2, (self.heads, self.size))
        return self.out(attend(query, memory, mask))  # type: ignore[no-any-return]


def linear(inner: int, outer: int, *, bound: float | None = None) -> nn.Linear:
    """Weights uniform within ±bound (Glorot & Bengio 2010 unless said), bias zero."""
    made = nn.Linear(inner, outer)
    bound = math.sqrt(6 / (inner + outer)) if bound is None else bound
    nn.init.uniform_(made.weight, -bound, bound)
    nn.init.zeros_(made.bias)
    return made
