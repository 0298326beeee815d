"""One step of a decoder without gradient or dropout, its keys and values written where there is room for them."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.attention import CrossAttention
from ebar.backbones.decoder import Decoder, DecoderState
from ebar.backbones.transformer_layer import TransformerLayer

ROOM = 16  # places to write to at first; twice as many whenever they are full


class TransformerStepper:
    """A draw under way.

    When some rows end, the last ones move to their slots and nothing else is copied: `slots` says where each row is.
    """

    def __init__(self, decoder: Decoder, state: DecoderState):
        self.decoder = decoder
        self.layers: list[TransformerLayer] = list(decoder.layers)  # type: ignore[arg-type]
        with torch.no_grad():
            self.seen = state.memory[0].shape[1]
            self.own = [_Memory(layer, self.seen + ROOM) for layer in state.memory]
            self.source = [_Memory(layer, layer.shape[1]) for layer in state.source]
            self.place = state.place
            self.mask = None
            if state.counts is not None:
                self.mask = _additive(state.counts, self.own[0].keys)
            self.source_mask = None
            if state.source_counts is not None:
                self.source_mask = _additive(state.source_counts, self.source[0].keys)
        self.slots: Tensor | None = None  # None: row i is in slot i

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        if self.seen == self.own[0].keys.shape[2]:
            self._make_room()
        if self.slots is not None:
            tokens = torch.empty_like(tokens).index_copy_(0, self.slots, tokens)
        x = F.embedding(tokens, self.decoder.inputs) * self.decoder.scale
        x += self.decoder.positions(self.place, 1)[:, 0]
        self.place = self.place + 1
        self.seen += 1
        for number, layer in enumerate(self.layers):
            own = layer.attention
            query, key, value = own.into(layer.attention_norm(x)).view(-1, 3, own.heads, own.size).unbind(1)
            memory = self.own[number]
            memory.keys[:, :, self.seen - 1] = key
            memory.values[:, :, self.seen - 1] = value
            x += own.out(memory.seen_by(query, self.seen, self.mask))
            cross = layer.cross
            if isinstance(cross, CrossAttention) and layer.cross_norm is not None:
                query = cross.query(layer.cross_norm(x)).view(-1, cross.heads, cross.size)
                source = self.source[number]
                x += cross.out(source.seen_by(query, source.keys.shape[2], self.source_mask))
            x += layer.narrow(layer.activation(layer.wide(layer.feedforward_norm(x))))
        hidden: Tensor = self.decoder.norm(x)
        return hidden if self.slots is None else hidden[self.slots]

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        kept = rows if self.slots is None else self.slots[rows]
        number = len(kept)
        taken = torch.zeros(len(self.own[0].keys), dtype=torch.bool, device=kept.device)
        taken[kept] = True
        if int(taken.sum()) < number:  # some row goes on as several
            self._each(lambda part: part[kept])
            self.slots = None
            return
        free, moving = (~taken[:number]).nonzero().squeeze(1), taken[number:].nonzero().squeeze(1) + number
        self._each(lambda part: _moved(part, moving, free)[:number])
        to = torch.arange(len(taken), device=kept.device)
        to[moving] = free
        self.slots = to[kept]

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        for memory in (*self.own, *self.source):
            memory.keys, memory.values = change(memory.keys), change(memory.values)
        if isinstance(self.place, Tensor):
            self.place = change(self.place)
        self.mask = None if self.mask is None else change(self.mask)
        self.source_mask = None if self.source_mask is None else change(self.source_mask)

    def _make_room(self) -> None:
        for memory in self.own:
            memory.keys, memory.values = _roomier(memory.keys), _roomier(memory.values)
        if self.mask is not None:
            self.mask = F.pad(self.mask, (0, self.mask.shape[-1]))


class _Memory:
    """Keys and values of one layer, each head's places one after another."""

    def __init__(self, memory: Float[Tensor, "rows places 2 heads size"], room: int):
        rows, places, _, heads, size = memory.shape
        together = memory.new_empty(2, rows, heads, room, size)
        together[:, :, :, :places] = memory.permute(2, 0, 3, 1, 4)
        self.keys, self.values = together

    def seen_by(
        self, query: Float[Tensor, "rows heads size"], places: int, mask: Float[Tensor, "rows heads room"] | None
    ) -> Float[Tensor, "rows width"]:
        """softmax(q·kᵀ/√size + mask)·v over the first places."""
        rows, heads, size = query.shape
        keys, values = self.keys[:, :, :places].flatten(0, 1), self.values[:, :, :places].flatten(0, 1)
        query, scale = query.reshape(rows * heads, 1, size), 1 / math.sqrt(size)
        if mask is None:
            scores = torch.baddbmm(query[:, :, :1], query, keys.transpose(1, 2), beta=0, alpha=scale)
        else:
            scores = torch.baddbmm(
                mask[:, :, :places].reshape(rows * heads, 1, places), query, keys.transpose(1, 2), alpha=scale
            )
        return torch.bmm(torch.softmax(scores, -1), values).view(rows, heads * size)


def _additive(counts: Tensor, keys: Float[Tensor, "rows heads room size"]) -> Float[Tensor, "rows heads room"]:
    """0 where a place counts and −inf where it does not."""
    hidden = F.pad(~counts, (0, keys.shape[2] - counts.shape[1]))
    return torch.zeros_like(keys[:, :, :, 0]).masked_fill_(hidden[:, None], -math.inf)


def _moved(part: Tensor, source: Int[Tensor, " some"], to: Int[Tensor, " some"]) -> Tensor:
    part[to] = part[source]
    return part


def _roomier(part: Float[Tensor, "rows heads room size"]) -> Float[Tensor, "rows heads more size"]:
    rows, heads, room, size = part.shape
    more = part.new_empty(rows, heads, 2 * room, size)
    more[:, :, :room] = part
    return more
