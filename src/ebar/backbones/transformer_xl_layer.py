"""One layer of Transformer-XL: relative attention, then a feed-forward part, each normalised after or before.

Vaswani et al. 2017 normalise the sum, norm(x + part(x)), and so does Dai et al. 2019's code unless told to normalise
before: x + part(norm x). Memory is normalised like the inputs there; at the top nothing is.

What a Transformer-XL carries: between segments the layers' inputs, between steps their keys and values.

One step of a Transformer-XL while sampling: no gradient, no dropout, and as many keys as a place sees.

Keys and values are written one after another. Where they reach the end of what there is room for, those that are still
seen move to the front, so that a text of any length takes the memory of a short one:

    before   [ a b c d e f g h ]        four places are seen
    after    [ f g h · · · · · ]        and the next is written fourth
"""

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
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


class SegmentMemory(NamedTuple):
    """The inputs of each layer in the last places that were read, without gradient.

    Inputs, not keys: the next segment makes keys of them with the weights of that time, which so have a gradient.
    """

    hidden: Float[Tensor, "rows layers places width"]
    valid: Int[Tensor, " rows"]
    """How many of the places hold something; they are the last ones."""

    def appended(self, inputs: list[Float[Tensor, "rows length width"]]) -> "SegmentMemory":
        """The last places of what is remembered and of what was read now."""
        places, length = self.hidden.shape[2], inputs[0].shape[1]
        if places == 0:
            return self
        new = torch.stack([layer.detach()[:, -places:] for layer in inputs], 1)
        hidden = torch.cat([self.hidden[:, :, length:], new], 2) if length < places else new
        return SegmentMemory(hidden, (self.valid + length).clamp(max=places))


class TransformerXlState(NamedTuple):
    """Keys and values of the last places, layer by layer; all that the next place sees but itself."""

    memory: tuple[Float[Tensor, "rows places 2 heads size"], ...]
    place: Int[Tensor, " rows"] | int
    """How many tokens have been read, beginning and prefix included; a number where all rows have read as many.

    Where it is less than there are places, the first of them hold nothing. Below 0, so much padding is still to come.
    """
    segment: Int[Tensor, " rows"] | int | None = None
    """Within a segment, `place` where it began: all that is remembered is seen, and nothing is forgotten. None: there
    are no segments, and each place sees as many others."""

    def select(self, rows: Int[Tensor, " selected"]) -> "TransformerXlState":
        place, segment = (part[rows] if isinstance(part, Tensor) else part for part in (self.place, self.segment))
        assert place is not None
        return TransformerXlState(tuple(layer[rows] for layer in self.memory), place, segment)

    @property
    def seen(self) -> int:
        """Places in memory."""
        return self.memory[0].shape[1] if self.memory else 0

    def first(self) -> Int[Tensor, " rows"] | None:
        """The first place of each row that holds something, in memory or in what comes after. None: all do."""
        if isinstance(self.place, int):
            return None
        first = (self.seen - self.place).clamp(min=0)
        return first if bool(first.any()) else None


if TYPE_CHECKING:
    from ebar.backbones.transformer_xl import TransformerXl

ROOM = 16  # places to write to at first; then twice as many, up to what is seen and a quarter


class TransformerXlStepper:
    """The cache of a batch of draws."""

    def __init__(self, backbone: "TransformerXl", state: TransformerXlState):
        self.backbone, self.grows = backbone, backbone.reach(state) is None  # within a segment nothing is forgotten
        self.reach = state.seen + ROOM if self.grows else backbone.memory
        self.layers: list[TransformerXlLayer] = list(backbone.layers)  # type: ignore[arg-type]
        self.most = self.reach if self.grows else self.reach + max(ROOM, self.reach // 4)
        with torch.no_grad():
            self.end = state.seen  # where the next place is written
            self.first = state.first()  # where each row begins; None: at the front
            self.begun = 0 if self.first is None else int(self.first.max())
            self.place = state.place - (0 if state.segment is None else state.segment)
            room = min(self.end + ROOM, self.most)
            self.memory = [_with_room(layer.permute(2, 0, 3, 1, 4), room) for layer in state.memory]
            self.by_distance = self._by_distance()

    def _by_distance(self) -> list[Float[Tensor, "heads size reach"] | None]:
        """r of every distance that is seen, the farthest first."""
        like = self.memory[0]
        distances = self.backbone.clamped(torch.arange(self.reach - 1, -1, -1, device=like.device))
        vectors = self.backbone.of_distances(distances, like)
        return [layer.attention.by_distance(distances, vectors) for layer in self.layers]

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        self._make_room()
        x = self.backbone.embed(tokens[:, None])
        if self.backbone.positions == "absolute":
            x = x + self.backbone.sinusoids(torch.as_tensor(self.place, device=x.device).reshape(-1, 1), x)
        self.end += 1
        self.place = self.place + 1
        low = max(0, self.end - self.reach)
        hidden = None
        if self.first is not None and low < self.begun:
            hidden = torch.arange(low, self.end, device=x.device) < self.first[:, None]
        for number, layer in enumerate(self.layers):
            own = layer.attention
            given = layer.attention_norm(x) if layer.before else x
            query, key, value = own.into(given).view(-1, 3, own.heads, own.size).unbind(1)
            memory = self.memory[number]
            memory[0, :, :, self.end - 1] = key
            memory[1, :, :, self.end - 1] = value
            seen = self._seen(number, query, memory[:, :, :, low : self.end], hidden)
            x = self._after(layer, x[:, 0], own.out(seen.flatten(1)))[:, None]
        return x[:, 0]

    def _seen(
        self, number: int, query: Float[Tensor, "rows heads size"], memory: Float[Tensor, "2 rows heads places size"],
        hidden: Tensor | None,
    ) -> Float[Tensor, "rows heads size"]:  # fmt: skip
        keys, values = memory
        biases, r = self.backbone.biases_of(number), self.by_distance[number]
        u, v = (0.0, 0.0) if biases is None else biases
        scores = torch.matmul(keys, (query + u)[..., None]).squeeze(3)
        if r is not None:
            scores += torch.einsum("rhs,hsp->rhp", query + v, r[:, :, self.reach - keys.shape[2] :])
        scores *= 1 / math.sqrt(query.shape[2])
        if hidden is not None:
            scores.masked_fill_(hidden[:, None], -math.inf)
        return torch.matmul(torch.softmax(scores, -1)[:, :, None], values).squeeze(2)

    @staticmethod
    def _after(layer: TransformerXlLayer, x: Tensor, seen: Tensor) -> Float[Tensor, "rows width"]:
        """As `TransformerXlLayer.after_attention`, without dropout in any mode."""
        x = x + seen
        if layer.before:
            return x + layer.narrow(F.relu(layer.wide(layer.feedforward_norm(x))))  # type: ignore[no-any-return]
        x = layer.attention_norm(x)
        return layer.feedforward_norm(x + layer.narrow(F.relu(layer.wide(x))))  # type: ignore[no-any-return]

    def _make_room(self) -> None:
        room = self.memory[0].shape[3]
        if self.end < room:
            return
        if self.grows:
            self.reach = self.most = 2 * room
            self.by_distance = self._by_distance()
        if room < self.most:
            self.memory = [_with_room(memory, min(2 * room, self.most)) for memory in self.memory]
            return
        gone = self.end - (self.reach - 1)
        for memory in self.memory:
            memory[:, :, :, : self.reach - 1] = memory[:, :, :, gone : self.end].clone()
        self.end -= gone
        if self.first is not None:
            self.first, self.begun = (self.first - gone).clamp(min=0), max(0, self.begun - gone)

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.memory = [_with_room(memory[:, rows, :, : self.end], memory.shape[3]) for memory in self.memory]
        self.first = None if self.first is None else self.first[rows]
        self.place = self.place if isinstance(self.place, int) else self.place[rows]


def _with_room(memory: Float[Tensor, "2 rows heads places size"], room: int) -> Float[Tensor, "2 rows heads room size"]:
    """A copy with room to write on."""
    two, rows, heads, places, size = memory.shape
    roomier = memory.new_empty(two, rows, heads, room, size)
    roomier[:, :, :, :places] = memory
    return roomier
