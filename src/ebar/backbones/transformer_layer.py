"""One layer of a Transformer: attention of several heads, and what is done to its output.

Attention is softmax(q·kᵀ/√size)·v for each head (Vaswani et al. 2017, equation 1). Keys and values of a place stand
side by side, [rows, places, 2, heads, size], as one matrix product leaves them. Each part of a layer is normalised
before it (Xiong et al. 2020: no warm-up is needed).

Where a token stands, as a vector: sinusoids (Vaswani et al. 2017, §3.5) or one learnt for each place.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.errors import UserError

LEVELS = 1 << 16  # of the random numbers that dropout compares with
Activation = Literal["relu", "gelu", "gelu_tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's
}


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


class TransformerLayer(nn.Module):
    """x + attention(norm x), with `cross` x + attention to a source(norm x), then x + feed-forward(norm x).

    Dropout is on what each part adds. What goes into the sum is smaller the more layers there are, at first
    (Radford et al. 2019: 1/√ of the number of parts).
    """

    def __init__(
        self, width: int, *, heads: int, feedforward: int, dropout: float, parts: int, activation: Activation,
        cross: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.dropout, self.activation = dropout, ACTIVATIONS[activation]
        self.attention_norm, self.attention = nn.LayerNorm(width), SelfAttention(width, heads)
        self.cross_norm = nn.LayerNorm(width) if cross else None
        self.cross = CrossAttention(width, heads) if cross else None
        self.feedforward_norm = nn.LayerNorm(width)
        self.wide, self.narrow = linear(width, feedforward), linear(feedforward, width)
        for last in (self.attention.out, self.narrow, *([] if self.cross is None else [self.cross.out])):
            last.weight.data.mul_(1 / math.sqrt(parts))

    def forward(
        self, x: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before 2 heads size"] | None = None,
        mask: Bool[Tensor, "some_rows 1 some_length places"] | None = None, *, causal: bool = False,
        source: Float[Tensor, "rows source 2 heads size"] | None = None,
        source_mask: Bool[Tensor, "rows 1 1 source"] | None = None,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        """The next layer's input, and this layer's memory with the inputs."""
        seen, memory = self.attention(self.attention_norm(x), memory, mask, causal=causal)
        x = x + self._dropped(seen)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self._dropped(self.cross(self.cross_norm(x), source, source_mask))
        wide = self.activation(self.wide(self.feedforward_norm(x)))
        return x + self._dropped(self.narrow(wide)), memory

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)


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


class Sinusoidal(nn.Module):
    """sin and cos of wavelengths 2π … 10000·2π, side by side: never learnt, as many places as are asked for."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("table", sinusoids(256, size), persistent=False)

    table: Tensor

    def forward(self, first: Int[Tensor, " rows"] | int, length: int) -> Float[Tensor, "some length size"]:
        """Vectors of `length` places from `first` on: one row for all where it is a number."""
        end = _end(first, length)
        if end > len(self.table):
            self.table = sinusoids(max(end, 2 * len(self.table)), self.size).to(self.table)
        return looked_up(self.table, first, length)


class Learnt(nn.Module):
    """One vector for each place, times √size as the tokens' vectors are."""

    def __init__(self, size: int, places: int):
        super().__init__()
        self.scale = math.sqrt(size)
        self.table = nn.Parameter(torch.randn(places, size) / self.scale)

    def forward(self, first: Int[Tensor, " rows"] | int, length: int) -> Float[Tensor, "some length size"]:
        end = _end(first, length)
        if end > len(self.table):
            raise UserError(
                f"Place {end} was asked for where {len(self.table)} are learnt, beginning and prefix included:"
                " raise maximal_length, or use sinusoidal positions."
            )
        return looked_up(self.table, first, length) * self.scale


def sinusoids(places: int, size: int) -> Float[Tensor, "places size"]:
    """In float32 whatever a model's precision: a table is the same table after a model has changed its own."""
    half = (size + 1) // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(places, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)[:, :size].float()


def _end(first: Int[Tensor, " rows"] | int, length: int) -> int:
    """One past the last place."""
    return length + (first if isinstance(first, int) else int(first.max()) if len(first) else 0)


def looked_up(
    table: Float[Tensor, "places size"], first: Int[Tensor, " rows"] | int, length: int
) -> Float[Tensor, "some length size"]:
    """`length` rows of the table from `first` on, a row of its own for each of several."""
    if isinstance(first, int):
        return table[None, first : first + length]
    return F.embedding(first[:, None] + torch.arange(length, device=first.device), table)
