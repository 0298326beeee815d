"""A Transformer decoder. Vaswani et al. 2017; normalised before each part, as in Radford et al. 2019."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.decoder import Decoder, DecoderState, served
from ebar.backbones.transformer_layer import Activation
from ebar.backbones.transformer_stepper import TransformerStepper
from ebar.types import Context


class Transformer(nn.Module):
    """Tokens → hidden vectors of the top layer, normalised; each place sees itself and those before it.

    A context is a prefix, read after the beginning; an empty one is no context. Dropout is on the input and on what
    each part of a layer adds. `feedforward` is 4 × hidden unless said; `maximal_length` is that of learnt positions,
    beginning and prefix included. With learnt positions and `gelu_tanh` the arithmetic is
    GPT-2's; `gelu` is the same curve to 0.0005, and trains faster on a CPU.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, positions: Literal["sinusoidal", "learnt"] = "sinusoidal", maximal_length: int = 1024,
        activation: Activation = "gelu",
    ):  # fmt: skip
        super().__init__()
        self.decoder = Decoder(
            vocabulary, layers=layers, hidden=hidden, heads=heads, feedforward=feedforward, dropout=dropout,
            positions=positions, maximal_length=maximal_length, activation=activation,
        )  # fmt: skip

    @property
    def width(self) -> int:
        return self.decoder.width

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], DecoderState]:
        if context is None:
            hidden, state = self.decoder(self.decoder.beginning(1), DecoderState((), 0))
            first = hidden[:, -1]
        else:
            given = context.given
            hidden, state = self.decoder(self.decoder.embed(self.decoder.prefix(given)), DecoderState((), 0))
            first = hidden[:, -1]
            if not _equal(context):
                first = picked(hidden, given.lengths[:, None])[:, 0]
                state = state._replace(place=given.lengths + 1, counts=F.pad(given.mask(), (1, 0), value=True))
            state = state._replace(memory=(), prefix=state.memory)  # once, however many rows go on from it
        return served(first, state, rows)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows length width"], DecoderState]:
        return self.decoder(self.embed(tokens), state)  # type: ignore[no-any-return]

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return self.decoder.embed(tokens)

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One causal pass over the beginning, the prefix and the inputs, unless rows share a prefix."""
        decoder, length = self.decoder, inputs.shape[1]
        if context is None:
            return decoder(torch.cat([decoder.beginning(len(inputs)), inputs], 1), DecoderState((), 0))[0]  # type: ignore[no-any-return]
        if context.rows != len(inputs):  # each prefix is read once
            first, state = self.start(len(inputs), context)
            return torch.cat([first[:, None], decoder(inputs, state)[0]], 1)
        prefix = decoder.embed(decoder.prefix(context.given))
        before = prefix.shape[1]
        whole = torch.cat([prefix, inputs], 1)
        if _equal(context):
            return decoder(whole, DecoderState((), 0))[0][:, before - 1 :]  # type: ignore[no-any-return]
        # Each row's inputs follow its own prefix, and what is left over comes last, where nobody looks: no mask.
        lengths, steps = context.given.lengths[:, None], torch.arange(before + length, device=inputs.device)
        order = torch.where(steps <= lengths, steps, (steps - lengths + before - 1).clamp(max=before + length - 1))
        hidden = decoder(picked(whole, order), DecoderState((), 0))[0]
        return picked(hidden, lengths + steps[: length + 1])

    def stepper(self, state: DecoderState) -> TransformerStepper:
        """The sampling step, its memory written in place."""
        return TransformerStepper(self.decoder, state)


def _equal(context: Context) -> bool:
    """Whether all prefixes fill their width: then there is nothing to mask."""
    return bool((context.given.lengths == context.given.tokens.shape[1]).all())


def picked(
    vectors: Float[Tensor, "rows places width"], which: Int[Tensor, "rows some"]
) -> Float[Tensor, "rows some width"]:
    """Some places of each row; as a table's lookup, whose gradient is a sum in a fixed order."""
    base = torch.arange(len(vectors), device=vectors.device)[:, None] * vectors.shape[1]
    return F.embedding(base + which, vectors.flatten(0, 1))
