"""Transformers: a decoder, an encoder–decoder and an encoder. Vaswani et al. 2017; normalised before each part, as in
Radford et al. 2019."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import NoMemory
from ebar.backbones.decoder import (
    Decoder,
    DecoderState,
    Positions,
    TransformerStack,
    checked_sizes,
    each_row,
    served,
    stack,
)
from ebar.backbones.transformer_layer import Activation, Sinusoidal, dropped
from ebar.backbones.transformer_stepper import TransformerStepper
from ebar.errors import UserError
from ebar.types import Context, Sequences, spread


class DecoderBackbone(nn.Module):
    """A backbone whose tokens are read by a decoder."""

    decoder: Decoder

    @property
    def width(self) -> int:
        return self.decoder.width

    @property
    def embedding(self) -> nn.Parameter:
        """The input vectors, a row for each token, then those of the beginning: what a head may tie to."""
        return self.decoder.inputs

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows length width"], DecoderState]:
        return self.decoder(self.embed(tokens), state)  # type: ignore[no-any-return]

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return self.decoder.embed(tokens)

    def stepper(self, state: DecoderState) -> TransformerStepper:
        """The sampling step, its memory written in place."""
        return TransformerStepper(self.decoder, state)


class Transformer(DecoderBackbone):
    """Tokens → hidden vectors of the top layer, normalised; each place sees itself and those before it.

    A context is a prefix, read after the beginning; an empty one is no context. Dropout is on the input and on what
    each part of a layer adds. `feedforward` is 4 × hidden unless said; `maximal_length` is that of learnt positions,
    beginning and prefix included; learnt_by_layer has some for the input of every layer (Al-Rfou et al. 2019). With
    learnt positions and `gelu_tanh` the arithmetic is
    GPT-2's; `gelu` is the same curve to 0.0005, and trains faster on a CPU.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, positions: Positions = "sinusoidal", maximal_length: int = 1024,
        activation: Activation = "gelu",
    ):  # fmt: skip
        super().__init__()
        self.decoder = Decoder(
            vocabulary, layers=layers, hidden=hidden, heads=heads, feedforward=feedforward, dropout=dropout,
            positions=positions, maximal_length=maximal_length, activation=activation,
        )  # fmt: skip

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

    def empty_memory(self, rows: int) -> NoMemory:
        """Nothing is carried: positions begin anew in each segment, which sees nothing of those before it."""
        return NoMemory()

    def enter_segment(self, memory: NoMemory) -> DecoderState:
        return DecoderState((), 0)

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: NoMemory
    ) -> tuple[Float[Tensor, "rows length width"], NoMemory]:
        return self.decoder(self.embed(tokens), self.enter_segment(memory))[0], memory

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One causal pass over the beginning, the prefix and the inputs, unless rows share a prefix."""
        if context is not None and context.rows != len(inputs):  # each prefix is read once
            first, state = self.start(len(inputs), context)
            return torch.cat([first[:, None], self.decoder(inputs, state)[0]], 1)
        whole, places = self._laid_out(inputs, context)
        return _at(self.decoder(whole, DecoderState((), 0))[0], places)

    def read_layers(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> tuple[Float[Tensor, "rows places width"], ...]:
        """What `read` gives, of every layer, each normalised as the last."""
        whole, places = self._laid_out(inputs, spread(context, len(inputs)))
        return tuple(_at(hidden, places) for hidden in self.decoder.every_layer(whole))

    def first_layer(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Of whole sequences: where a prefix is given, its own vectors would have to come along."""
        _no_prefix(context)
        whole = torch.cat([self.decoder.beginning(len(inputs)), inputs], 1)
        return self.decoder.first_layer(whole, DecoderState((), 0))

    def read_on(
        self, vectors: Float[Tensor, "rows places width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        _no_prefix(context)
        return self.decoder.read_on(vectors, DecoderState((), 0))

    def _laid_out(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None
    ) -> tuple[Float[Tensor, "rows all width"], Int[Tensor, "rows places"] | int]:
        """The beginning, the prefix and the inputs, and where the last of the prefix and the inputs stand.

        That is from one place on, or in each row's own places.
        """
        decoder, length = self.decoder, inputs.shape[1]
        if context is None:
            return torch.cat([decoder.beginning(len(inputs)), inputs], 1), 0
        prefix = decoder.embed(decoder.prefix(context.given))
        before = prefix.shape[1]
        whole = torch.cat([prefix, inputs], 1)
        if _equal(context):
            return whole, before - 1
        # Each row's inputs follow its own prefix, and what is left over comes last, where nobody looks: no mask.
        lengths, steps = context.given.lengths[:, None], torch.arange(before + length, device=inputs.device)
        order = torch.where(steps <= lengths, steps, (steps - lengths + before - 1).clamp(max=before + length - 1))
        return picked(whole, order), lengths + steps[: length + 1]


class EncoderDecoder(DecoderBackbone):
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
        checked_sizes(encoder_layers, hidden, heads, feedforward, dropout)
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

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One pass of the encoder over the sources, one of the decoder over the beginning and the inputs."""
        whole = torch.cat([self.decoder.beginning(len(inputs)), inputs], 1)
        return self.decoder(whole, self._sources(len(inputs), context))[0]  # type: ignore[no-any-return]

    def first_layer(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Of the decoder; the sources are read to their end."""
        whole = torch.cat([self.decoder.beginning(len(inputs)), inputs], 1)
        return self.decoder.first_layer(whole, self._sources(len(inputs), context))

    def read_on(
        self, vectors: Float[Tensor, "rows places width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        return self.decoder.read_on(vectors, self._sources(len(vectors), context))

    def _sources(self, rows: int, context: Context | None) -> DecoderState:
        """Read once each, for so many rows."""
        state = self.encode(_source(context))
        contexts = len(state.source[0])
        return state if rows == contexts else state.select(each_row(contexts, rows, state.source[0].device))


class BidirectionalTransformer(TransformerStack):
    """Tokens → hidden vectors of the top layer, normalised; each place sees the whole sequence, padding never
    (Devlin et al. 2019).

    A beginning stands before the first token, so that an empty sequence can be read too. It is one more token after
    the vocabulary, and the mask of masked language modelling is the next. `feedforward` is 4 × hidden unless said;
    `maximal_length` is that of learnt positions, beginning included.
    """

    extra = 2

    @property
    def mask_token(self) -> int:
        """Stands where a token is hidden."""
        return self.vocabulary + 1

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        mask = None if bool(inside.all()) else F.pad(inside, (1, 0), value=True)[:, None, None]
        hidden = self.entered(self.embed(self.prefix(x)), 0)
        for number, layer in enumerate(self.layers):
            hidden, _ = layer(self.given_to(number, hidden, 0), None, mask)
        return self.norm(hidden)[:, 1:]  # type: ignore[no-any-return]


def _equal(context: Context) -> bool:
    """Whether all prefixes fill their width: then there is nothing to mask."""
    return bool((context.given.lengths == context.given.tokens.shape[1]).all())


def _at(
    hidden: Float[Tensor, "rows all width"], places: Int[Tensor, "rows places"] | int
) -> Float[Tensor, "rows places width"]:
    return hidden[:, places:] if isinstance(places, int) else picked(hidden, places)


def picked(
    vectors: Float[Tensor, "rows places width"], which: Int[Tensor, "rows some"]
) -> Float[Tensor, "rows some width"]:
    """Some places of each row; as a table's lookup, whose gradient is a sum in a fixed order."""
    base = torch.arange(len(vectors), device=vectors.device)[:, None] * vectors.shape[1]
    return F.embedding(base + which, vectors.flatten(0, 1))


def _no_prefix(context: Context | None) -> None:
    if context is not None:
        raise UserError("A Transformer that goes on from a prefix cannot be entered after its first layer.")


def _source(context: Context | None) -> Sequences:
    if context is None:
        raise UserError("An encoder–decoder translates something: give it source sentences as the context.")
    return context.given
