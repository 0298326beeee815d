"""One layer of a Transformer, each part normalised before it (Xiong et al. 2020: no warm-up is needed)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ebar.backbones.attention import CrossAttention, SelfAttention, linear
from ebar.backbones.dropout import dropped

Activation = Literal["relu", "gelu", "gelu_tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's
}


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
