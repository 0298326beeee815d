"""One step of a Transformer decoder while sampling: no gradient, no dropout, a key-value cache written in place.

Keys and values are kept in three places. Rows that share a context share its cache:

    contexts        prefix and source        rows (draws)         each row's own tokens
    ┌─────────┐     ┌──────────────┐         ┌────────┐ slot 0    ┌──────────┬─────────┐
    │ C₀      │ ──▶ │ k, v of C₀   │ ◀────── │ draw a │ ────────▶ │ k, v     │ room    │
    │         │     │ (read once)  │ ◀────── │ draw b │ slot 1    │ of x₍<t₎ │ (grows  │
    │ C₁      │ ──▶ │ k, v of C₁   │ ◀────── │ draw c │ slot 2    │          │  by 2×) │
    └─────────┘     └──────────────┘         └────────┘           └──────────┴─────────┘

1. A step computes query, key and value of one new token per row and writes key and value into the row's own cache.
2. Attention over the row's own tokens is one batched product per head. Attention over the prefix is one product per
   *context*: the queries of its rows are gathered side by side (`_Groups.gather`), so the prefix is read once however
   many rows share it, and scattered back. The two softmaxes are then merged exactly (`_seen`).
3. When rows end, `keep` moves the last rows into the slots that became free instead of copying the whole cache:
   `slots` maps each row to its slot. A context whose rows have all ended is removed in the same way.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.backbones.decoder import Decoder, DecoderState
from ebar.backbones.transformer_layer import CrossAttention, TransformerLayer

ROOM = 16  # places to write to at first; twice as many whenever they are full


class TransformerStepper:
    """The cache of a batch of draws; see the module's picture."""

    def __init__(self, decoder: Decoder, state: DecoderState):
        self.decoder = decoder
        self.layers: list[TransformerLayer] = list(decoder.layers)  # type: ignore[arg-type]
        with torch.no_grad():
            shared = (*state.prefix, *state.source, *state.memory)[0]
            rows = torch.arange(len(shared), device=shared.device) if state.context is None else state.context
            served, self.groups = _grouped(rows)
            self.prefix = [_Memory(layer[served], layer.shape[1]) for layer in state.prefix]
            self.source = [_Memory(layer[served], layer.shape[1]) for layer in state.source]
            self.prefix_mask = None if state.counts is None else _additive(state.counts[served], shared.dtype)
            self.source_mask = (
                None if state.source_counts is None else _additive(state.source_counts[served], shared.dtype)
            )
            empty = shared.new_empty(len(rows), 0, *shared.shape[2:])
            own = state.memory or [empty] * len(self.layers)
            self.seen = own[0].shape[1]
            self.own = [_Memory(layer, self.seen + ROOM) for layer in own]
            self.place = state.place if isinstance(state.place, int) else state.place.clone()
        self.slots: Tensor | None = None  # None: row i is in slot i

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        if self.seen == self.own[0].keys.shape[2]:
            for memory in self.own:
                memory.keys, memory.values = _roomier(memory.keys), _roomier(memory.values)
        if self.slots is not None:
            tokens = torch.empty_like(tokens).index_copy_(0, self.slots, tokens)
        x = F.embedding(tokens, self.decoder.inputs) * self.decoder.scale
        x += self.decoder.positions(self.place, 1)[:, 0]
        place = self.place
        self.place = self.place + 1
        self.seen += 1
        for number, layer in enumerate(self.layers):
            if number > 0 and len(self.decoder.later_positions) > 0:
                x += self.decoder.later_positions[number - 1](place, 1)[:, 0]
            own = layer.attention
            query, key, value = own.into(layer.attention_norm(x)).view(-1, 3, own.heads, own.size).unbind(1)
            memory = self.own[number]
            memory.keys[:, :, self.seen - 1] = key
            memory.values[:, :, self.seen - 1] = value
            x += own.out(self._seen(number, query).flatten(1))
            cross = layer.cross
            if isinstance(cross, CrossAttention) and layer.cross_norm is not None:
                query = cross.query(layer.cross_norm(x)).view(-1, cross.heads, cross.size)
                memory = self.source[number]
                source, _ = memory.seen_by(memory.scores(self.groups.gather(query), mask=self.source_mask))
                x += cross.out(self.groups.scatter(source).flatten(1))
            x += layer.narrow(layer.activation(layer.wide(layer.feedforward_norm(x))))
        hidden: Tensor = self.decoder.norm(x)
        return hidden if self.slots is None else hidden[self.slots]

    def _seen(self, number: int, query: Float[Tensor, "slots heads size"]) -> Float[Tensor, "slots heads size"]:
        """Attention over the shared prefix and the row's own tokens together.

        With a = Σ e^score over the prefix and b over the own tokens, the joint softmax attends by
        (a·prefix + b·own)/(a + b), and a/(a + b) = σ(log a − log b).
        """
        memory = self.own[number]
        scores = memory.scores(query[:, :, None], self.seen)
        own, weights = memory.seen_by(scores)
        if not self.prefix:
            return own[:, :, 0]
        before = self.prefix[number].scores(self.groups.gather(query), mask=self.prefix_mask)
        prefix, prefix_weights = self.prefix[number].seen_by(before)
        share = torch.sigmoid(self.groups.scatter(log_sum(before, prefix_weights)) - log_sum(scores, weights)[:, :, 0])
        return torch.lerp(own[:, :, 0], self.groups.scatter(prefix), share)

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        kept = rows if self.slots is None else self.slots[rows]
        context = self.groups.context
        if len(torch.unique(kept)) < len(kept):  # some row goes on as several
            self._each_row(lambda part: part[kept])
            context, self.slots = context[kept], None
        else:
            moved = _Moved(kept, len(context))
            self._each_row(moved)
            context, self.slots = moved(context), moved.to[kept]
        self._regroup(context)

    def _regroup(self, context: Int[Tensor, " slots"]) -> None:
        """Contexts without a row are left out."""
        served = torch.unique(context)
        if len(served) < self.groups.contexts:
            moved = _Moved(served, self.groups.contexts)
            for memory in (*self.prefix, *self.source):
                memory.change(moved)
            self.prefix_mask = None if self.prefix_mask is None else moved(self.prefix_mask)
            self.source_mask = None if self.source_mask is None else moved(self.source_mask)
            context = moved.to[context]
        self.groups = _Groups(context, len(served))

    def _each_row(self, change: Callable[[Tensor], Tensor]) -> None:
        for memory in self.own:
            memory.change(change)
        if isinstance(self.place, Tensor):
            self.place = change(self.place)


class _Groups:
    """Which slots share a context: a row of `widest` places for each context, some of them empty."""

    def __init__(self, context: Int[Tensor, " slots"], contexts: int):
        self.context, self.contexts = context, contexts
        sizes = torch.bincount(context, minlength=contexts)
        self.widest = int(sizes.max()) if contexts else 0
        order = torch.argsort(context, stable=True)
        within = torch.arange(len(context), device=context.device) - (sizes.cumsum(0) - sizes)[context[order]]
        self.places = torch.empty_like(context).index_copy_(0, order, context[order] * self.widest + within)
        self.full = bool((self.places == torch.arange(len(context), device=context.device)).all())
        self.full = self.full and len(context) == contexts * self.widest

    def gather(self, part: Float[Tensor, "slots heads size"]) -> Float[Tensor, "contexts heads widest size"]:
        if not self.full:
            empty = part.new_zeros(self.contexts * self.widest, *part.shape[1:])
            part = empty.index_copy_(0, self.places, part)
        return part.view(self.contexts, self.widest, *part.shape[1:]).transpose(1, 2)

    def scatter(self, part: Float[Tensor, "contexts heads widest size"]) -> Float[Tensor, "slots heads size"]:
        part = part.transpose(1, 2).flatten(0, 1)
        return part if self.full else part[self.places]


def _grouped(context: Int[Tensor, " rows"]) -> tuple[Int[Tensor, " contexts"], _Groups]:
    """The contexts that are served, and which rows share one; none do where most places would be empty."""
    served, inverse = torch.unique(context, return_inverse=True)
    groups = _Groups(inverse, len(served))
    if groups.contexts * groups.widest <= 4 * len(context):
        return served, groups
    return context, _Groups(torch.arange(len(context), device=context.device), len(context))


class _Memory:
    """Keys and values of one layer, each head's places one after another."""

    def __init__(self, memory: Float[Tensor, "rows places 2 heads size"], room: int):
        rows, places, _, heads, size = memory.shape
        together = memory.new_empty(2, rows, heads, room, size)
        together[:, :, :, :places] = memory.permute(2, 0, 3, 1, 4)
        self.keys, self.values = together

    def change(self, change: Callable[[Tensor], Tensor]) -> None:
        self.keys, self.values = change(self.keys), change(self.values)

    def scores(
        self, query: Float[Tensor, "rows heads queries size"], places: int | None = None, *,
        mask: Float[Tensor, "rows places"] | None = None,
    ) -> Float[Tensor, "rows heads queries seen"]:  # fmt: skip
        """q·kᵀ/√size + mask over the first places."""
        rows, heads, queries, size = query.shape
        keys = self.keys[:, :, :places].flatten(0, 1).transpose(1, 2)
        query, scale = query.reshape(rows * heads, queries, size), 1 / math.sqrt(size)
        if mask is None:
            scores = torch.baddbmm(query[:, :, :1], query, keys, beta=0, alpha=scale)
        else:
            hidden = mask[:, None].expand(-1, heads, -1).flatten(0, 1)[:, None]
            scores = torch.baddbmm(hidden, query, keys, alpha=scale)
        return scores.view(rows, heads, queries, keys.shape[2])

    def seen_by(
        self, scores: Float[Tensor, "rows heads queries seen"]
    ) -> tuple[Float[Tensor, "rows heads queries size"], Float[Tensor, "rows heads queries seen"]]:
        """softmax(scores)·v, and the softmax."""
        weights = torch.softmax(scores, -1)
        values = self.values[:, :, : scores.shape[3]].flatten(0, 1)
        return torch.bmm(weights.flatten(0, 1), values).view(*scores.shape[:3], values.shape[2]), weights


def log_sum(
    scores: Float[Tensor, "rows heads queries seen"], weights: Float[Tensor, "rows heads queries seen"]
) -> Float[Tensor, "rows heads queries 1"]:
    """log Σ e^score, recovered from the softmax: score − log softmax is the same in every place."""
    return scores.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log()


class _Moved:
    """Compacts the kept rows into the first slots: rows beyond them move into the gaps, the others stay in place."""

    def __init__(self, kept: Int[Tensor, " kept"], slots: int):
        self.number = len(kept)
        taken = torch.zeros(slots, dtype=torch.bool, device=kept.device)
        taken[kept] = True
        self.free = (~taken[: self.number]).nonzero().squeeze(1)
        self.moving = taken[self.number :].nonzero().squeeze(1) + self.number
        self.to = torch.arange(slots, device=kept.device)
        self.to[self.moving] = self.free

    def __call__(self, part: Tensor) -> Tensor:
        part[self.free] = part[self.moving]
        return part[: self.number]


def _additive(counts: Bool[Tensor, "contexts places"], dtype: torch.dtype) -> Float[Tensor, "contexts places"]:
    """0 where a place counts and −inf where it does not."""
    return torch.zeros(counts.shape, dtype=dtype, device=counts.device).masked_fill_(~counts, -math.inf)


def _roomier(part: Float[Tensor, "rows heads room size"]) -> Float[Tensor, "rows heads more size"]:
    rows, heads, room, size = part.shape
    more = part.new_empty(rows, heads, 2 * room, size)
    more[:, :, :room] = part
    return more
