"""An XLNet that reads token by token: what is given first, all of it at once, then the tokens to come, in any order.

Given tokens see each other, to both sides. A token to come sees the given ones, those that came before it and itself;
the query for the place after it in the order sees the same. So nothing that was read changes by what comes later, and
keys and values are kept. Places are anywhere, so distances are looked up, not shifted.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from ebar.backbones.xlnet_view import Cut, Stream, View, stream
from ebar.types import Context


class XlNetState(NamedTuple):
    """What has been read: keys and values of each layer, and where they stand; and where the tokens to come do."""

    memory: tuple[Tensor, ...]
    """[rows, seen, 2, heads, size] of each layer."""
    places: Int[Tensor, "rows seen"]
    counts: Bool[Tensor, "rows seen"]
    """False on padding of what was given."""
    next: Int[Tensor, " rows"]
    """Where the next token stands if there is no order: after all that was read."""
    order: Int[Tensor, "rows to_come"] | None
    """Places of the tokens to come; −1 where there are fewer."""

    def select(self, rows: Int[Tensor, " selected"]) -> "XlNetState":
        order = None if self.order is None else self.order[rows]
        memory = tuple(layer[rows] for layer in self.memory)
        return XlNetState(memory, self.places[rows], self.counts[rows], self.next[rows], order)

    def to_come(self, length: int) -> Int[Tensor, "rows length"]:
        """Places of the next tokens; past the end of an order one is as good as another."""
        places = self.next[:, None] + torch.arange(length, device=self.next.device)
        if self.order is None:
            return places
        order = F.pad(self.order[:, :length], (0, max(0, length - self.order.shape[1])), value=-1)
        return torch.where(order >= 0, order, places)

    def read(self, memory: tuple[Tensor, ...], length: int) -> "XlNetState":
        """After so many more tokens."""
        return XlNetState(
            memory, torch.cat([self.places, self.to_come(length)], 1), F.pad(self.counts, (0, length), value=True),
            self.next + length, None if self.order is None else self.order[:, length:],
        )  # fmt: skip


def before_given(context: Context) -> XlNetState:
    """Of which nothing has been read yet: the tokens to come are those after the given ones."""
    given, order = context.given, context.order
    if order is not None:
        each = given.lengths[:, None] + torch.arange(order.shape[1], device=order.device)
        order = F.pad(order, (0, 1), value=-1).gather(1, each.clamp(max=order.shape[1]))
    nothing = given.tokens[:, :0]
    return XlNetState((), nothing, nothing.bool(), given.lengths, order)


def places_of_given(context: Context) -> Int[Tensor, "rows length"]:
    """0 on padding."""
    inside = context.given.mask()
    if context.order is None:
        return torch.arange(inside.shape[1], device=inside.device) * inside
    order = F.pad(context.order, (0, max(0, inside.shape[1] - context.order.shape[1])))
    return torch.where(inside, order[:, : inside.shape[1]], 0)


class Asked(NamedTuple):
    """Places of one stream, and which keys each may not see."""

    places: Int[Tensor, "rows queries"]
    hidden: Bool[Tensor, "rows queries keys"]


def anywhere(before: Int[Tensor, "rows seen"], content: Asked, query: Asked, chunk: int | None) -> View:
    """Of content and queries that stand anywhere, after what has been read."""
    keys = torch.cat([before, content.places], 1)
    farthest = max(int(part.max()) for part in (keys, query.places) if part.numel()) if query.places.numel() else 0
    distances = torch.arange(farthest, -farthest - 1, -1, device=keys.device)
    length = content.places.shape[1]
    first, second = (_stream(one, keys, farthest, chunk) for one in (content, query))
    return View(Cut(length, before.shape[1], 1, length), first, second, distances)


def _stream(asked: Asked, keys: Int[Tensor, "rows keys"], farthest: int, chunk: int | None) -> Stream:
    places, hidden = asked.places[:, :, None], asked.hidden
    if chunk is not None:
        hidden = hidden | ((places // chunk - keys[:, None] // chunk).abs() > 1)
    return stream(hidden[:, None])._replace(columns=(farthest - places + keys[:, None])[:, None])
