"""One layer of Transformer-XL: relative attention, then a feed-forward part, each normalised after or before.

Vaswani et al. 2017 normalise the sum, norm(x + part(x)), and so does Dai et al. 2019's code unless told to normalise
before: x + part(norm x). Memory is normalised like the inputs there; at the top nothing is.
"""

from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.relative_attention import RelativeAttention, View
from ebar.backbones.transformer_layer import dropped

Normalise = Literal["after", "before"]


class Dropout(nn.Module):
    """Dropout of each number, or of a number of the vector in all places of a row (variational, Gal & Ghahramani
    2016)."""

    def __init__(self, probability: float, *, variational: bool = False):
        super().__init__()
        self.probability, self.variational = probability, variational

    def forward(self, x: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places width"]:
        if self.variational and self.training and self.probability > 0:
            return x * dropped(torch.ones_like(x[:, :1]), self.probability, True)
        return dropped(x, self.probability, self.training)


class TransformerXlLayer(nn.Module):
    """Dropout is on what each part adds, and between the two products of the feed-forward part."""

    def __init__(
        self, width: int, attention: RelativeAttention, *, feedforward: int, dropout: Dropout, normalise: Normalise
    ):
        super().__init__()
        self.before, self.dropout = normalise == "before", dropout
        self.attention, self.attention_norm = attention, nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.feedforward_norm = nn.LayerNorm(width)

    def remember(self, hidden: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places 2 heads size"]:
        """Keys and values of what this layer was given earlier."""
        return self.attention.remember(self.attention_norm(hidden) if self.before else hidden)

    def forward(
        self, x: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before 2 heads size"] | None,
        seen: View, vectors: Float[Tensor, "distances width"] | None, biases: Float[Tensor, "2 heads size"] | None,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        """The next layer's input, and keys and values with those of the inputs."""
        given = self.attention_norm(x) if self.before else x
        added, memory = self.attention(given, memory, seen, vectors, biases)
        return self.after_attention(x, added), memory

    def after_attention(
        self, x: Float[Tensor, "rows length width"], seen: Float[Tensor, "rows length width"]
    ) -> Float[Tensor, "rows length width"]:
        """What is done with the attention's output."""
        x = x + self.dropout(seen)
        if not self.before:
            x = self.attention_norm(x)
        wide = self.dropout(F.relu(self.wide(self.feedforward_norm(x) if self.before else x)))
        x = x + self.dropout(self.narrow(wide))
        return x if self.before else self.feedforward_norm(x)


if TYPE_CHECKING:
    pass
