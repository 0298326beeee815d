"""A stack of Transformer layers that reads from left to right, with or without a source to look at."""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from ebar.backbones.backbone import check_layers
from ebar.backbones.transformer_layer import Activation, Learnt, Sinusoidal, TransformerLayer, dropped
from ebar.types import Sequences

Positions = Literal["sinusoidal", "learnt", "learnt_by_layer"]
Selected = TypeVar("Selected", bound=Any)  # the state of a backbone, of which rows can be selected


class DecoderState(NamedTuple):
    """Keys and values of what has been read, layer by layer: once for each row, or once for all rows of a context.

    Rows are cheap to repeat: `select` copies what is a row's own, and the number of its context.
    """

    memory: tuple[Float[Tensor, "rows seen 2 heads size"], ...]
    """What each row has read after the prefix."""
    place: Int[Tensor, " rows"] | int
    """How many tokens have been read, beginning and prefix included; a number where all rows have read as many."""
    prefix: tuple[Float[Tensor, "contexts prefix 2 heads size"], ...] = ()
    """What came before that."""
    counts: Bool[Tensor, "contexts prefix"] | None = None
    """Which places of the prefix count: those past the end of a shorter one do not. None: all."""
    source: tuple[Float[Tensor, "contexts source 2 heads size"], ...] = ()
    source_counts: Bool[Tensor, "contexts source"] | None = None
    context: Int[Tensor, " rows"] | None = None
    """Which context each row belongs to. None: row i to context i."""

    def select(self, rows: Int[Tensor, " selected"]) -> "DecoderState":
        return self._replace(
            memory=tuple(layer[rows] for layer in self.memory),
            place=self.place if isinstance(self.place, int) else self.place[rows],
            context=rows if self.context is None else self.context[rows],
        )

    def of_rows(self, part: Shaped[Tensor, "contexts ..."]) -> Shaped[Tensor, "rows ..."]:
        """What each row's context has."""
        return part if self.context is None else part[self.context]


def each_row(contexts: int, rows: int, device: torch.device) -> Int[Tensor, " rows"]:
    """Which context each of the context-major rows belongs to."""
    return torch.arange(contexts, device=device).repeat_interleave(rows // max(contexts, 1))


def served(
    first: Float[Tensor, "contexts width"], state: Selected, rows: int
) -> tuple[Float[Tensor, "rows width"], Selected]:
    """What was read once for each context, for all rows that share it."""
    if rows == len(first):
        return first, state
    each = each_row(len(first), rows, first.device)
    return first[each], state.select(each)


class TransformerStack(nn.Module):
    """Vectors of tokens, positions and layers; besides those of the vocabulary there are vectors of `extra` tokens.

    `feedforward` is 4 × hidden unless said; `maximal_length` is the number of learnt positions, beginning and prefix
    included, which are added to the input of the first layer, or of each layer its own (Al-Rfou et al. 2019); `cross`
    adds attention to a source.
    """

    extra = 1  # the beginning of a sequence

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, positions: Positions = "sinusoidal", maximal_length: int = 1024,
        activation: Activation = "gelu", cross: bool = False,
    ):  # fmt: skip
        super().__init__()
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        if maximal_length < 1:
            raise ValueError(f"maximal_length must be at least 1, not {maximal_length}")
        self.vocabulary, self.dropout, self.scale = vocabulary, dropout, math.sqrt(hidden)
        self.inputs = nn.Parameter(torch.randn(vocabulary + self.extra, hidden) / self.scale)
        self.positions = Sinusoidal(hidden) if positions == "sinusoidal" else Learnt(hidden, maximal_length)
        self.later_positions = nn.ModuleList(
            Learnt(hidden, maximal_length) for _ in range(layers - 1 if positions == "learnt_by_layer" else 0)
        )
        self.layers = stack(layers, hidden, heads, feedforward, dropout, activation, cross=cross)
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    def prefix(self, given: Sequences) -> Int[Tensor, "rows places"]:
        """The beginning and the prefix; padding may hold anything, so it is made to hold the beginning."""
        tokens = torch.where(given.mask(), given.tokens, self.vocabulary)
        return F.pad(tokens, (1, 0), value=self.vocabulary)

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        """Times √width, so that a unit of learning moves them as it moves a matrix (Vaswani et al. 2017, §3.4)."""
        return F.embedding(tokens, self.inputs) * self.scale

    def entered(
        self, inputs: Float[Tensor, "rows length width"], place: Int[Tensor, " rows"] | int
    ) -> Float[Tensor, "rows length width"]:
        return dropped(inputs + self.positions(place, inputs.shape[1]), self.dropout, self.training)

    def given_to(
        self, number: int, x: Float[Tensor, "rows length width"], place: Int[Tensor, " rows"] | int
    ) -> Float[Tensor, "rows length width"]:
        """The input of a layer: where each has positions of its own, those of the first have been added before."""
        if number == 0 or len(self.later_positions) == 0:
            return x
        return x + self.later_positions[number - 1](place, x.shape[1])  # type: ignore[no-any-return]


class Decoder(TransformerStack):
    """Tokens → hidden vectors; the last of the `inputs` vectors is the beginning's."""

    def beginning(self, rows: int) -> Float[Tensor, "rows 1 width"]:
        return (self.inputs[-1] * self.scale).expand(rows, 1, -1)

    def forward(
        self, inputs: Float[Tensor, "rows length width"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows length width"], DecoderState]:
        """One more segment; a state without memory is the beginning of everything."""
        length = inputs.shape[1]
        seen = sum(part[0].shape[1] for part in (state.prefix, state.memory) if part)
        x = self.entered(inputs, state.place)
        counts = None if state.counts is None else state.of_rows(state.counts)
        mask = None if seen == 0 else visible(counts, seen, length, x.device)
        x, memory = self.through(x, state, mask, causal=seen == 0)
        return x, state._replace(memory=memory, place=state.place + length)

    def every_layer(self, inputs: Float[Tensor, "rows length width"]) -> Iterator[Float[Tensor, "rows length width"]]:
        """What comes out of each layer, normalised as that of the last is, from the beginning of everything."""
        x = self.entered(inputs, 0)
        for number, layer in enumerate(self.layers):
            x, _ = layer(self.given_to(number, x, 0), causal=True)
            yield self.norm(x)

    def first_layer(
        self, inputs: Float[Tensor, "rows length width"], state: DecoderState
    ) -> Float[Tensor, "rows length width"]:
        """What comes out of the first layer, as the second is given it, from the beginning of everything."""
        return self.through(self.entered(inputs, 0), state, None, causal=True, layers=range(1))[0]

    def read_on(self, x: Float[Tensor, "rows length width"], state: DecoderState) -> Float[Tensor, "rows length width"]:
        """The rest of the way from there."""
        return self.norm(self.through(x, state, None, causal=True, layers=range(1, len(self.layers)))[0])  # type: ignore[no-any-return]

    def through(
        self, x: Float[Tensor, "rows length width"], state: DecoderState,
        mask: Bool[Tensor, "some_rows 1 some_length places"] | None, *, causal: bool, layers: range | None = None,
    ) -> tuple[Float[Tensor, "rows length width"], tuple[Float[Tensor, "rows seen 2 heads size"], ...]]:  # fmt: skip
        """Through all layers, and normalised; or through some of them, as they leave it."""
        source_mask = None if state.source_counts is None else state.of_rows(state.source_counts)[:, None, None]
        after = []
        for number in range(len(self.layers)) if layers is None else layers:
            layer = self.layers[number]
            memory = state.memory[number] if state.memory else None
            if state.prefix:
                prefix = state.of_rows(state.prefix[number])
                memory = prefix if memory is None else torch.cat([prefix, memory], 1)
            source = state.of_rows(state.source[number]) if state.source else None
            x = self.given_to(number, x, state.place)
            x, memory = layer(x, memory, mask, causal=causal, source=source, source_mask=source_mask)
            if state.prefix:  # copied, so that nothing holds on to the prefix of each row
                memory = memory[:, state.prefix[number].shape[1] :].clone()
            after.append(memory)
        return self.norm(x) if layers is None else x, tuple(after)


def visible(
    counts: Bool[Tensor, "rows prefix"] | None, seen: int, length: int, device: torch.device
) -> Bool[Tensor, "some_rows 1 some_length places"] | None:
    """What each of `length` new places may look at: `seen` places of memory that count, itself and those before it.

    None: everything.
    """
    mask = None
    if length > 1:
        mask = torch.ones(length, seen + length, dtype=torch.bool, device=device).tril(seen)[None, None]
    if counts is None:
        return mask
    known = F.pad(counts, (0, seen + length - counts.shape[1]), value=True)[:, None, None]
    return known if mask is None else mask & known


def stack(
    layers: int, hidden: int, heads: int, feedforward: int | None, dropout: float, activation: Activation, *,
    cross: bool = False,
) -> nn.ModuleList:  # fmt: skip
    """The layers; `feedforward` is 4 × hidden unless said."""
    return nn.ModuleList(
        TransformerLayer(
            hidden, heads=heads, feedforward=feedforward or 4 * hidden, dropout=dropout,
            parts=layers * (3 if cross else 2), activation=activation, cross=cross,
        )
        for _ in range(layers)
    )  # fmt: skip


def checked_sizes(layers: int, hidden: int, heads: int, feedforward: int | None, dropout: float) -> None:
    """Sizes that cannot be are refused before anything is made of them."""
    check_layers(layers, dropout)
    if hidden < 1 or heads < 1 or hidden % heads:
        raise ValueError(f"hidden must be a multiple of heads, not {hidden} of {heads}")
    if feedforward is not None and feedforward < 1:
        raise ValueError(f"feedforward must be at least 1, not {feedforward}")
