"""A Transformer that reads a source sentence whole and writes a target. Vaswani et al. 2017, normalised first."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.decoder import Decoder, DecoderState, checked, each_row, served, stack
from ebar.backbones.dropout import dropped
from ebar.backbones.positions import Sinusoidal
from ebar.backbones.transformer_layer import Activation
from ebar.backbones.transformer_stepper import TransformerStepper
from ebar.errors import UserError
from ebar.types import Context, Sequences


class EncoderDecoder(nn.Module):
    """Tokens → hidden vectors of the decoder's top layer, given a source sentence: the context, without which
    there is nothing to read.

    A source is read once for all its rows, and each layer's keys and values of it are computed once.
    `feedforward` is 4 × hidden unless said. `source_vocabulary` is the number of the source's tokens where they are not
    the target's; unless it is said, both sides share their vectors.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 3, encoder_layers: int = 3, hidden: int = 256, heads: int = 4,
        feedforward: int | None = None, dropout: float = 0.1, activation: Activation = "relu",
        source_vocabulary: int | None = None,
    ):  # fmt: skip
        super().__init__()
        checked(encoder_layers, hidden, heads, feedforward, dropout)
        if source_vocabulary is not None and source_vocabulary < 1:
            raise ValueError(f"source_vocabulary must be at least 1, not {source_vocabulary}")
        self.source_vocabulary = vocabulary if source_vocabulary is None else source_vocabulary
        self.decoder = Decoder(
            vocabulary, layers=layers, hidden=hidden, heads=heads, feedforward=feedforward, dropout=dropout,
            activation=activation, cross=True,
        )  # fmt: skip
        self.source_inputs = (
            None if source_vocabulary is None
            else nn.Parameter(torch.randn(source_vocabulary + 1, hidden) / math.sqrt(hidden))
        )  # fmt: skip
        self.positions = Sinusoidal(hidden)
        self.encoder = stack(encoder_layers, hidden, heads, feedforward, dropout, activation)
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.decoder.width

    def encode(self, source: Sequences) -> DecoderState:
        """What the decoder sees of the source; an empty one is read as a beginning alone."""
        decoder = self.decoder
        inside = source.mask()
        tokens = torch.where(inside, source.tokens, self.source_vocabulary)
        if tokens.shape[1] == 0:
            tokens, inside = F.pad(tokens, (0, 1), value=self.source_vocabulary), F.pad(inside, (0, 1))
        counts = None
        if not bool(inside.all()):
            counts = torch.cat([torch.ones_like(inside[:, :1]), inside[:, 1:]], 1)
        vectors = decoder.inputs if self.source_inputs is None else self.source_inputs
        x = F.embedding(tokens, vectors) * decoder.scale + self.positions(0, tokens.shape[1])
        x = dropped(x, decoder.dropout, self.training)
        mask = None if counts is None else counts[:, None, None]
        for layer in self.encoder:
            x, _ = layer(x, None, mask)
        x = self.norm(x)
        remembered = tuple(layer.cross.remember(x) for layer in decoder.layers)  # type: ignore[operator, union-attr]
        return DecoderState((), 0, source=remembered, source_counts=counts)

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], DecoderState]:
        state = self.encode(_source(context))
        hidden, state = self.decoder(self.decoder.beginning(len(state.source[0])), state)
        return served(hidden[:, 0], state, rows)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows length width"], DecoderState]:
        return self.decoder(self.embed(tokens), state)  # type: ignore[no-any-return]

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return self.decoder.embed(tokens)

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One pass of the encoder over the sources, one of the decoder over the beginning and the inputs."""
        rows, state = len(inputs), self.encode(_source(context))
        if rows != len(state.source[0]):
            state = state.select(each_row(len(state.source[0]), rows, inputs.device))
        return self.decoder(torch.cat([self.decoder.beginning(rows), inputs], 1), state)[0]  # type: ignore[no-any-return]

    def stepper(self, state: DecoderState) -> TransformerStepper:
        """The sampling step, its memory written in place."""
        return TransformerStepper(self.decoder, state)


def _source(context: Context | None) -> Sequences:
    if context is None:
        raise UserError("An encoder–decoder translates something: give it source sentences as the context.")
    return context.given
