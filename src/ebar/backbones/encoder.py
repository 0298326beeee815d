"""A Transformer encoder: every place sees every other. Vaswani et al. 2017; Devlin et al. 2019; normalised first."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.decoder import checked, stack
from ebar.backbones.dropout import dropped
from ebar.backbones.positions import Learnt, Sinusoidal
from ebar.backbones.transformer_layer import Activation
from ebar.types import Sequences


class BidirectionalTransformer(nn.Module):
    """Tokens → hidden vectors of the top layer, normalised; each place sees the whole sequence, padding never.

    A beginning stands before the first token, so that an empty sequence can be read too. It is one more token after
    the vocabulary, and the mask of masked language modelling is the next. `feedforward` is 4 × hidden unless said;
    `maximal_length` is that of learnt positions, beginning included.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, positions: Literal["sinusoidal", "learnt"] = "sinusoidal", maximal_length: int = 1024,
        activation: Activation = "gelu",
    ):  # fmt: skip
        super().__init__()
        checked(layers, hidden, heads, feedforward, dropout)
        if maximal_length < 1:
            raise ValueError(f"maximal_length must be at least 1, not {maximal_length}")
        self.vocabulary, self.dropout, self.scale = vocabulary, dropout, math.sqrt(hidden)
        self.inputs = nn.Parameter(torch.randn(vocabulary + 2, hidden) / self.scale)
        self.positions = Sinusoidal(hidden) if positions == "sinusoidal" else Learnt(hidden, maximal_length)
        self.layers = stack(layers, hidden, heads, feedforward, dropout, activation)
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    @property
    def mask_token(self) -> int:
        """Stands where a token is hidden."""
        return self.vocabulary + 1

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        # Padding may hold anything, a token outside the vocabulary included.
        tokens = F.pad(torch.where(inside, x.tokens, self.vocabulary), (1, 0), value=self.vocabulary)
        mask = None if bool(inside.all()) else F.pad(inside, (1, 0), value=True)[:, None, None]
        hidden = F.embedding(tokens, self.inputs) * self.scale + self.positions(0, tokens.shape[1])
        hidden = dropped(hidden, self.dropout, self.training)
        for layer in self.layers:
            hidden, _ = layer(hidden, None, mask)
        return self.norm(hidden)[:, 1:]  # type: ignore[no-any-return]
