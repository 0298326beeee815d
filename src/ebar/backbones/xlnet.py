"""XLNet: a Transformer that predicts tokens in any order, each from all those before it in that order.

Yang et al. 2019 (arXiv:1906.08237); Dai 2019 (thesis), chapter 4. There are two streams. The content stream h has a
vector for each place, which knows what stands there; the query stream g one for each place to be predicted, which knows
where it stands and what comes before it in the order, not what it is. Both have the same weights. Distances have a
sign, so that left and right differ. With `chunk`, attention is local (chapter 5.4): a place sees its own chunk and
those left and right of it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import check_layers
from ebar.backbones.bounded import each_layers
from ebar.backbones.decoder import each_row
from ebar.backbones.relative import relative_sinusoids
from ebar.backbones.transformer_layer import ACTIVATIONS, Activation, dropped
from ebar.backbones.xlnet_attention import XlNetAttention, XlNetLayer
from ebar.backbones.xlnet_view import Cut, Stream, View, stream, view
from ebar.errors import UserError, choose
from ebar.types import Context, spread

SCALE = 0.02  # standard deviation of first weights


class XlNetMemory(NamedTuple):
    """The inputs of each layer at the last places that were read and kept, without gradient."""

    inputs: Float[Tensor, "rows layers places width"]
    filled: Int[Tensor, " rows"]
    """How many of the places hold something; they are the last ones."""


class XlNetOutput(NamedTuple):
    """What the last layer gives."""

    content: Float[Tensor, "rows length width"]
    query: Float[Tensor, "rows predicted width"] | None
    """At the targets; None where there are none."""
    memory: XlNetMemory | None
    """After this text; None where the network has none."""


class XlNetState(NamedTuple):
    """What has been read: keys and values of each layer, where they stand, and what is to come."""

    memory: tuple[Float[Tensor, "rows seen 2 heads size"], ...]
    places: Int[Tensor, "rows seen"]
    counts: Bool[Tensor, "rows seen"]
    """False on padding of the given tokens."""
    order: Int[Tensor, "rows to_come"] | None
    """Places of the tokens to come, from the next on. None: each stands after all that was read."""
    given: Int[Tensor, " rows"]
    read: int
    """How many tokens each row has read after the given ones."""

    def select(self, rows: Int[Tensor, " selected"]) -> "XlNetState":
        order = None if self.order is None else self.order[rows]
        memory = tuple(layer[rows] for layer in self.memory)
        return XlNetState(memory, self.places[rows], self.counts[rows], order, self.given[rows], self.read)


class XlNet(nn.Module):
    """Tokens → vectors of what stands at each place (content) and of what may stand there (query).

    `head_size` is hidden / heads and `feedforward` 4 × hidden unless said. `memory` is how many places of earlier texts
    are remembered; distances count up to `clamp_length` to either side. `chunk` is one number, or one for each layer:
    then a place sees its own chunk and its two neighbours, and of the memory, from the first chunk, the last `chunk`
    places. A query that sees nothing gets zero from attention.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, head_size: int | None = None,
        feedforward: int | None = None, dropout: float = 0.1, attention_dropout: float = 0.1, memory: int = 0,
        clamp_length: int | None = None, chunk: int | list[int] | None = None, activation: Activation = "gelu",
        norm_epsilon: float = 1e-12,
    ):  # fmt: skip
        super().__init__()
        check_layers(layers, dropout)
        check_layers(layers, attention_dropout)
        choose(ACTIVATIONS, activation, "activation")
        if hidden < 1 or heads < 1 or (head_size is None and hidden % heads):
            raise ValueError(f"hidden must be a multiple of heads, not {hidden} of {heads}, unless head_size is given")
        for name, number in (("head_size", head_size), ("feedforward", feedforward), ("clamp_length", clamp_length)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        if memory < 0:
            raise ValueError(f"memory must be at least 0, not {memory}")
        self.vocabulary, self.width, self.memory, self.clamp_length = vocabulary, hidden, memory, clamp_length
        self.dropout = dropout
        self.chunks = [None] * layers if chunk is None else each_layers(chunk, layers, "chunk")
        self.embedding = nn.Parameter(torch.empty(vocabulary, hidden))
        self.mask = nn.Parameter(torch.empty(hidden))  # what a query is at first
        self.layers = nn.ModuleList(
            XlNetLayer(
                hidden, XlNetAttention(hidden, heads, head_size or hidden // heads, dropout=attention_dropout),
                feedforward=feedforward or 4 * hidden, dropout=dropout, activation=activation,
                norm_epsilon=norm_epsilon,
            )
            for _ in range(layers)
        )  # fmt: skip
        for name, parameter in self.named_parameters():
            if not name.endswith(("norm.weight", "norm.bias")):
                nn.init.zeros_(parameter) if name.endswith(".bias") else nn.init.normal_(parameter, std=SCALE)

    def empty_memory(self, rows: int) -> XlNetMemory:
        """Of texts of which nothing has been read."""
        inputs = self.embedding.new_zeros(rows, len(self.layers), self.memory, self.width)
        return XlNetMemory(inputs, torch.zeros(rows, dtype=torch.long, device=inputs.device))

    def forward(
        self, tokens: Int[Tensor, "rows length"], *, inside: Bool[Tensor, "rows length"] | None = None,
        segments: Int[Tensor, "rows length"] | None = None,
        hidden_from: Bool[Tensor, "rows length length"] | None = None,
        targets: Int[Tensor, "rows predicted"] | None = None, memory: XlNetMemory | None = None,
        reuse: int | None = None, backwards: Bool[Tensor, " rows"] | None = None,
    ) -> XlNetOutput:  # fmt: skip
        """All places at once.

        `inside` is False on padding. `segments` are numbers from 0 on, which the memory has. `hidden_from[r, i, j]`:
        place i may not see place j; content always sees itself, a query never. `targets` are the places whose queries
        are wanted, −1 for none, whose vector means nothing. The first `reuse` places, all unless said, go into the
        memory. Rows that are `backwards` hold a text from its end to its beginning: their distances change sign.
        """
        memory = self._checked(memory, len(tokens))
        used = int(memory.filled.max()) if self.memory and len(tokens) else 0
        if inside is not None:  # padding may hold anything
            tokens = torch.where(inside, tokens, 0)
        views = self._views(tokens, memory.filled, used, inside, segments, hidden_from, targets, backwards)
        x = F.embedding(tokens, self.embedding)
        if targets is not None:
            x = torch.cat([x, self.mask.expand(*targets.shape, -1)], 1)
        x, length, inputs = self._dropped(x), tokens.shape[1], []
        for number, (layer, chunk) in enumerate(zip(self.layers, self.chunks, strict=True)):
            inputs.append(x[:, :length])
            seen, vectors = views[chunk]
            before = memory.inputs[:, number, self.memory - seen.cut.before :] if seen.cut.before else None
            x, _ = layer(x, None if before is None else layer.attention.remember(before), seen, vectors)
        x = self._dropped(x)
        query = None if targets is None else x[:, length:]
        return XlNetOutput(x[:, :length], query, self._remembered(memory, inputs, reuse))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], XlNetState]:
        """Reads what is given, all of which sees all of it, and asks for the first token to come.

        `context.order` has the places of the given tokens, then of those to come; without it they stand in a row.
        """
        query, state = self._given(1 if context is None else context.rows, context)
        if rows == len(query):
            return query, state
        each = each_row(len(query), rows, query.device)
        return query[each], state.select(each)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: XlNetState
    ) -> tuple[Float[Tensor, "rows length width"], XlNetState]:
        """Each token sees what was given and those that came before it; the query for the next place sees the same."""
        return self._advance(self.embed(tokens), state)

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return F.embedding(tokens, self.embedding)

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        first, state = self.start(len(inputs), context)
        return torch.cat([first[:, None], self._advance(inputs, state)[0]], 1)

    def _given(self, rows: int, context: Context | None) -> tuple[Float[Tensor, "rows width"], XlNetState]:
        device = self.embedding.device
        if context is None:
            empty = torch.zeros(rows, 0, dtype=torch.long, device=device)
            tokens, counts, order, lengths = empty, empty.bool(), None, empty.sum(1)
        else:
            counts, order, lengths = context.given.mask(), context.order, context.given.lengths
            tokens = torch.where(counts, context.given.tokens, 0)
        places = torch.arange(tokens.shape[1], device=device).expand_as(tokens)
        if order is not None:
            places = F.pad(order, (0, max(0, tokens.shape[1] - order.shape[1])))[:, : tokens.shape[1]]
            last = torch.arange(order.shape[1], device=device) + lengths[:, None]
            order = F.pad(order, (0, 1), value=-1).gather(1, last.clamp(max=order.shape[1]))
        places = torch.where(counts, places, 0)
        state = XlNetState((), places[:, :0], counts[:, :0], order, lengths, 0)
        x = torch.cat([self.embed(tokens), self.mask.expand(rows, 1, -1)], 1)
        hidden = (~counts)[:, None] & ~torch.eye(tokens.shape[1], dtype=torch.bool, device=device)
        blind = F.pad(~counts, (0, 0))[:, None]
        x, memory = self._through(x, state, places, counts, state_places(state, 1), hidden, blind)
        after = state._replace(memory=memory, places=places, counts=counts)
        return x[:, -1], after

    def _advance(
        self, inputs: Float[Tensor, "rows length width"], state: XlNetState
    ) -> tuple[Float[Tensor, "rows length width"], XlNetState]:
        rows, length = inputs.shape[:2]
        places = state_places(state, length + 1)
        counts = torch.cat([state.counts, torch.ones_like(inputs[:, :, 0], dtype=torch.bool)], 1)
        later = torch.ones(length, counts.shape[1], dtype=torch.bool, device=inputs.device).triu(state.counts.shape[1] + 1)
        hidden = later | ~counts[:, None]
        x = torch.cat([inputs, self.mask.expand(rows, length, -1)], 1)
        x, memory = self._through(x, state, places[:, :-1], counts, places[:, 1:], hidden, hidden)
        order = None if state.order is None else state.order[:, length:]
        after = state._replace(
            memory=memory, places=torch.cat([state.places, places[:, :-1]], 1), counts=counts, order=order,
            read=state.read + length,
        )  # fmt: skip
        return x[:, length:], after

    def _through(
        self, x: Float[Tensor, "rows both width"], state: XlNetState, places: Int[Tensor, "rows length"],
        counts: Bool[Tensor, "rows seen"], asked: Int[Tensor, "rows predicted"],
        hidden: Bool[Tensor, "rows length seen"], hidden_from_asked: Bool[Tensor, "rows predicted seen"],
    ) -> tuple[Float[Tensor, "rows both width"], tuple[Float[Tensor, "rows seen 2 heads size"], ...]]:  # fmt: skip
        """Both streams wherever their places are, `asked` being those of the queries."""
        keys = torch.cat([state.places, places], 1)
        farthest = max(0, *(int(part.max()) for part in (keys, asked) if part.numel()), 0)
        distances = torch.arange(farthest, -farthest - 1, -1, device=x.device)
        vectors = self._vectors(distances, backwards=False)
        cut = Cut(places.shape[1], state.places.shape[1], 1, places.shape[1])
        views = {}
        for chunk in set(self.chunks):
            streams = [
                self._anywhere(own, keys, unseen, farthest, chunk)
                for own, unseen in ((places, hidden), (asked, hidden_from_asked))
            ]
            views[chunk] = View(cut, *streams, None, distances)
        x, memory = self._dropped(x), []
        for number, (layer, chunk) in enumerate(zip(self.layers, self.chunks, strict=True)):
            x, now = layer(x, state.memory[number] if state.memory else None, views[chunk], vectors)
            memory.append(now)
        return self._dropped(x), tuple(memory)

    def _anywhere(
        self, places: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"],
        hidden: Bool[Tensor, "rows queries keys"], farthest: int, chunk: int | None,
    ) -> Stream:  # fmt: skip
        columns = farthest - places[:, :, None] + keys[:, None]
        if chunk is not None:
            away = places[:, :, None].div(chunk, rounding_mode="floor") - keys[:, None].div(chunk, rounding_mode="floor")
            hidden = hidden | (away.abs() > 1)
        return stream(hidden[:, None])._replace(columns=columns[:, None])

    def _views(
        self, tokens: Int[Tensor, "rows length"], filled: Int[Tensor, " rows"], used: int,
        inside: Bool[Tensor, "rows length"] | None, segments: Int[Tensor, "rows length"] | None,
        hidden_from: Bool[Tensor, "rows length length"] | None, targets: Int[Tensor, "rows predicted"] | None,
        backwards: Bool[Tensor, " rows"] | None,
    ) -> dict[int | None, tuple[View, Float[Tensor, "directions distances width"]]]:  # fmt: skip
        """What is seen, and the sinusoids of its distances, for each size of chunk."""
        rows, length = tokens.shape
        if segments is not None and (not segments.numel() or bool((segments == (0 if used else segments[:, :1])).all())):
            segments = None  # all of one: nothing differs
        mixed = backwards is not None and bool(backwards.any() != backwards.all())
        views = {}
        for chunk in set(self.chunks):
            cut = Cut.of(length, used, chunk)
            counts = torch.ones(1, length, dtype=torch.bool, device=tokens.device) if inside is None else inside
            if cut.before:
                remembered = torch.arange(cut.before, 0, -1, device=tokens.device) <= filled[:, None]
                counts = torch.cat([remembered, counts.expand(rows, -1)], 1)
            kinds = None if segments is None else F.pad(segments, (cut.before, 0))
            seen = view(cut, counts, kinds, hidden_from, targets, self.embedding.dtype)
            if mixed and backwards is not None:
                seen = seen._replace(direction=backwards.long())
                vectors = torch.cat([self._vectors(seen.distances, backwards=way) for way in (False, True)])
            else:
                vectors = self._vectors(seen.distances, backwards=backwards is not None and bool(backwards.any()))
            views[chunk] = seen, vectors
        return views

    def _vectors(
        self, distances: Int[Tensor, " distances"], *, backwards: bool
    ) -> Float[Tensor, "1 distances width"]:
        """Sinusoids, in single precision whatever the network's, as the original's are."""
        if self.clamp_length is not None:
            distances = distances.clamp(-self.clamp_length, self.clamp_length)
        vectors = relative_sinusoids((-distances if backwards else distances).float(), self.width)
        return self._dropped(vectors.to(self.embedding.dtype))[None]

    def _checked(self, memory: XlNetMemory | None, rows: int) -> XlNetMemory:
        if memory is None:
            return self.empty_memory(rows)
        wanted = (rows, len(self.layers), self.memory, self.width)
        if tuple(memory.inputs.shape) != wanted:
            raise UserError(f"This memory is of shape {list(memory.inputs.shape)} and the network's {list(wanted)}: begin anew.")
        return memory

    def _remembered(
        self, memory: XlNetMemory, inputs: list[Float[Tensor, "rows length width"]], reuse: int | None
    ) -> XlNetMemory | None:
        if self.memory == 0:
            return None
        new = torch.stack([layer.detach()[:, :reuse] for layer in inputs], 1)
        kept = torch.cat([memory.inputs, new], 2)[:, :, new.shape[2] :]
        kept = kept[:, :, kept.shape[2] - self.memory :]
        return XlNetMemory(kept, (memory.filled + new.shape[2]).clamp(max=self.memory))

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)


def state_places(state: XlNetState, length: int) -> Int[Tensor, "rows length"]:
    """Of the next tokens; where none is to come any more, a place after all others."""
    rows = state.given[:, None] + torch.arange(state.read, state.read + length, device=state.given.device)
    if state.order is None:
        return rows
    order = F.pad(state.order, (0, length), value=-1)[:, :length]
    return torch.where(order >= 0, order, rows)
