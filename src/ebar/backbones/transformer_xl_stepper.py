"""One step of a Transformer-XL while sampling: no gradient, no dropout, and as many keys as a place sees.

Keys and values are written one after another. Where they reach the end of what there is room for, those that are still
seen move to the front, so that a text of any length takes the memory of a short one:

    before   [ a b c d e f g h ]        four places are seen
    after    [ f g h · · · · · ]        and the next is written fourth
"""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.transformer_xl_layer import TransformerXlLayer
from ebar.backbones.transformer_xl_memory import TransformerXlState

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
