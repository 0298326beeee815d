"""XLNet: a Transformer that predicts tokens in any order, each from all those before it in that order.

Yang et al. 2019 (arXiv:1906.08237); Dai 2019 (thesis), chapter 4. There are two streams. The content stream h has a
vector for each place, which knows what stands there; the query stream g one for each place to be predicted, which knows
where it stands and what comes before it in the order, not what it is. Both have the same weights. Distances have a
sign, so that left and right differ. With `chunk`, attention is local (chapter 5.4): a place sees its own chunk and
those left and right of it.

The content stream of an XLNet as a network that sees both sides of every token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import check_attention
from ebar.backbones.bounded import each_layers
from ebar.backbones.decoder import each_row
from ebar.backbones.relative_attention import relative_sinusoids
from ebar.backbones.transformer_layer import ACTIVATIONS, Activation, dropped
from ebar.backbones.xlnet_attention import XlNetAttention, XlNetLayer
from ebar.backbones.xlnet_view import Asked, Cut, View, XlNetState, anywhere, before_given, places_of_given, view
from ebar.errors import UserError, choose
from ebar.types import Context, Sequences

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


class XlNet(nn.Module):
    """Tokens → vectors of what stands at each place (content) and of what may stand there (query).

    `head_size` is hidden / heads and `feedforward` 4 × hidden unless said. `memory` is how many places of earlier texts
    are remembered; distances count up to `clamp_length` to either side. `chunk` is one number, or one for each layer:
    then a place sees its own chunk and its two neighbours, and of the memory, from the first chunk, the last `chunk`
    places. A query that sees nothing gets zero from attention.
    """

    any_order = True

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, head_size: int | None = None,
        feedforward: int | None = None, dropout: float = 0.1, attention_dropout: float = 0.1, memory: int = 0,
        clamp_length: int | None = None, chunk: int | list[int] | None = None, activation: Activation = "gelu",
        norm_epsilon: float = 1e-12,
    ):  # fmt: skip
        super().__init__()
        sizes = {"feedforward": feedforward, "clamp_length": clamp_length}
        check_attention(hidden, heads, head_size, layers, dropout, attention_dropout, **sizes)
        choose(ACTIVATIONS, activation, "activation")
        if memory < 0:
            raise ValueError(f"memory must be at least 0, not {memory}")
        self.vocabulary, self.width, self.memory, self.clamp_length = vocabulary, hidden, memory, clamp_length
        self.dropout, self.activation = dropout, activation
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
        """Both streams at all places at once.

        `inside` is False on padding. `segments` are numbers from 0 on, which the memory has. `hidden_from[r, i, j]`:
        place i may not see place j; content always sees itself, a query never. `targets` are the places whose queries
        are wanted, −1 for none, whose vector means nothing. The first `reuse` places, all unless said, go into the
        memory. Rows that are `backwards` hold a text from its end to its beginning: their distances change sign.
        """
        memory = self._checked(memory, len(tokens))
        if inside is not None:  # padding may hold anything
            tokens = torch.where(inside, tokens, 0)
        views = self._views(tokens, memory, inside, segments, hidden_from, targets, backwards)
        x, length, inputs = self._entered(self.embed(tokens), targets), tokens.shape[1], []
        for number, (layer, chunk) in enumerate(zip(self.layers, self.chunks, strict=True)):
            inputs.append(x[:, :length])
            seen, vectors = views[chunk]
            before = memory.inputs[:, number, self.memory - seen.cut.before :]
            x, _ = layer(x, layer.attention.remember(before) if seen.cut.before else None, seen, vectors)  # type: ignore[operator, union-attr]
        x = self._dropped(x)
        query = None if targets is None else x[:, length:]
        return XlNetOutput(x[:, :length], query, self._remembered(memory, inputs, reuse))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], XlNetState]:
        """Reads what is given, all of which sees all of it, and asks for the first token to come.

        `context.order` has the places of the given tokens, then of those to come; without it they stand in a row.
        """
        if context is None:
            nothing = torch.zeros(rows, 0, dtype=torch.long, device=self.embedding.device)
            context = Context(Sequences(nothing, nothing.sum(1)))
        given, inside, state = context.given, context.given.mask(), before_given(context)
        itself = torch.eye(inside.shape[1], dtype=torch.bool, device=inside.device)
        content = Asked(places_of_given(context), ~inside[:, None] & ~itself)
        query = Asked(state.to_come(1), ~inside[:, None])
        embedded = self.embed(torch.where(inside, given.tokens, 0))  # padding may hold anything
        first, memory = self._through(embedded, state, content, query)
        state = state._replace(memory=memory, places=content.places, counts=inside)
        if rows == context.rows:
            return first[:, 0], state
        each = each_row(context.rows, rows, first.device)
        return first[each, 0], state.select(each)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: XlNetState
    ) -> tuple[Float[Tensor, "rows length width"], XlNetState]:
        """Query vectors of the place after each token in the order."""
        return self._advance(self.embed(tokens), state)

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return F.embedding(tokens, self.embedding)

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        first, state = self.start(len(inputs), context)
        return torch.cat([first[:, None], self._advance(inputs, state)[0]], 1)

    def _advance(
        self, inputs: Float[Tensor, "rows length width"], state: XlNetState
    ) -> tuple[Float[Tensor, "rows length width"], XlNetState]:
        length, places = inputs.shape[1], state.to_come(inputs.shape[1] + 1)
        counts = F.pad(state.counts, (0, length), value=True)
        later = torch.ones(length, counts.shape[1], dtype=torch.bool, device=inputs.device)
        hidden = later.triu(state.counts.shape[1] + 1) | ~counts[:, None]
        query, memory = self._through(inputs, state, Asked(places[:, :-1], hidden), Asked(places[:, 1:], hidden))
        return query, state.read(memory, length)

    def _through(
        self, inputs: Float[Tensor, "rows length width"], state: XlNetState, content: Asked, query: Asked
    ) -> tuple[Float[Tensor, "rows predicted width"], tuple[Float[Tensor, "rows seen 2 heads size"], ...]]:
        """Query vectors, and keys and values of all that has been read."""
        views = {chunk: anywhere(state.places, content, query, chunk) for chunk in set(self.chunks)}
        vectors = self._vectors(views[self.chunks[0]].distances, backwards=False)
        x, memory = self._entered(inputs, query.places), []
        for number, (layer, chunk) in enumerate(zip(self.layers, self.chunks, strict=True)):
            x, now = layer(x, state.memory[number] if state.memory else None, views[chunk], vectors)
            memory.append(now)
        return self._dropped(x[:, inputs.shape[1] :]), tuple(memory)

    def _entered(
        self, content: Float[Tensor, "rows length width"], targets: Int[Tensor, "rows predicted"] | None
    ) -> Float[Tensor, "rows both width"]:
        """The first input of both streams, one after the other: a query is the same vector wherever it stands."""
        if targets is not None:
            content = torch.cat([content, self.mask.expand(*targets.shape, -1)], 1)
        return self._dropped(content)

    def _views(
        self, tokens: Int[Tensor, "rows length"], memory: XlNetMemory, inside: Bool[Tensor, "rows length"] | None,
        segments: Int[Tensor, "rows length"] | None, hidden_from: Bool[Tensor, "rows length length"] | None,
        targets: Int[Tensor, "rows predicted"] | None, backwards: Bool[Tensor, " rows"] | None,
    ) -> dict[int | None, tuple[View, Float[Tensor, "directions distances width"]]]:  # fmt: skip
        """What is seen, and the sinusoids of its distances, for each size of chunk."""
        (rows, length), device = tokens.shape, tokens.device
        used = int(memory.filled.max()) if self.memory and rows else 0
        ways = [False] if backwards is None else sorted(set(backwards.tolist()))
        direction = backwards.long() if backwards is not None and len(ways) == 2 else None
        views = {}
        for chunk in set(self.chunks):
            cut = Cut.of(length, used, chunk)
            counts = torch.ones(1, length, dtype=torch.bool, device=device) if inside is None else inside
            if cut.before:
                remembered = torch.arange(cut.before, 0, -1, device=device) <= memory.filled[:, None]
                counts = torch.cat([remembered, counts.expand(rows, -1)], 1)
            kinds = None if segments is None else _one_hot(F.pad(segments, (cut.before, 0)), self.embedding)
            seen = view(cut, counts, kinds, hidden_from, targets)._replace(direction=direction)
            views[chunk] = seen, torch.cat([self._vectors(seen.distances, backwards=way) for way in ways or [False]])
        return views

    def _vectors(self, distances: Int[Tensor, " distances"], *, backwards: bool) -> Float[Tensor, "1 distances width"]:
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
            raise UserError(
                f"This memory is of shape {list(memory.inputs.shape)} and the network's {list(wanted)}: begin anew."
            )
        return memory

    def _remembered(
        self, memory: XlNetMemory, inputs: list[Float[Tensor, "rows length width"]], reuse: int | None
    ) -> XlNetMemory | None:
        if self.memory == 0:
            return None
        new = torch.stack([layer.detach()[:, :reuse] for layer in inputs], 1)
        kept = torch.cat([memory.inputs, new], 2)[:, :, new.shape[2] :]
        return XlNetMemory(kept, (memory.filled + new.shape[2]).clamp(max=self.memory))

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)


def _one_hot(segments: Int[Tensor, "rows places"], like: Tensor) -> Float[Tensor, "rows places kinds"] | None:
    """None where all places of a row are of one segment, so that nothing differs."""
    if not segments.numel() or bool((segments == segments[:, :1]).all()):
        return None
    return F.one_hot(segments).to(like.dtype)


class XlNetBidirectional(nn.Module):
    """Tokens → hidden vectors; each place sees all others or, where the XLNet attends locally, its neighbourhood.

    `mask_token` is what stands where a token is hidden, for masked language modelling; tokens of text are numbered
    from 0 to `vocabulary` − 1, and what the XLNet knows besides them spells nothing.
    """

    def __init__(self, network: XlNet, vocabulary: int, mask_token: int):
        super().__init__()
        self.network, self.vocabulary, self.mask_token = network, vocabulary, mask_token

    @property
    def width(self) -> int:
        return self.network.width

    @property
    def inputs(self) -> nn.Parameter:
        """Vectors of the tokens, and of those that spell nothing."""
        return self.network.embedding

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        return self.network(x.tokens, inside=None if bool(inside.all()) else inside).content  # type: ignore[no-any-return]
