"""What the places of a text see of one another in XLNet: all of it, or their neighbourhood.

A text is cut into blocks of queries, each with the keys that any of them may see. With full attention there is one
block, and its keys are the memory and the text; with chunks of C places there is one block for each chunk, and its keys
are the chunk and its two neighbours: left of the first chunk are the last C places of the memory.

An XLNet that reads token by token: what is given first, all of it at once, then the tokens to come, in any order.

Given tokens see each other, to both sides. A token to come sees the given ones, those that came before it and itself;
the query for the place after it in the order sees the same. So nothing that was read changes by what comes later, and
keys and values are kept. Places are anywhere, so distances are looked up, not shifted.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ebar.backbones.transformer import picked
from ebar.types import Context


class Cut(NamedTuple):
    """How a text of `length` places after `before` remembered ones is cut."""

    length: int
    before: int
    blocks: int
    size: int
    """Places of a block."""

    @staticmethod
    def of(length: int, remembered: int, chunk: int | None) -> "Cut":
        """By full attention, or by chunks; two chunks that see each other and no memory see all there is."""
        before = remembered if chunk is None else min(remembered, chunk)
        if chunk is None or length <= (chunk if before else 2 * chunk):
            return Cut(length, before, 1, length)
        return Cut(length, before, -(-length // chunk), chunk)

    @property
    def left(self) -> int:
        """How many keys of a block stand before its first query."""
        return self.before if self.blocks == 1 else self.size

    @property
    def keys(self) -> int:
        return self.before + self.size if self.blocks == 1 else 3 * self.size

    def queries_of(self, part: Shaped[Tensor, "rows length *rest"]) -> Shaped[Tensor, "rows blocks size *rest"]:
        """The places of each block; zeros stand after the last."""
        return torch.unflatten(_padded(part, 0, self.blocks * self.size - self.length), 1, (self.blocks, self.size))

    def keys_of(self, part: Shaped[Tensor, "rows places *rest"]) -> Shaped[Tensor, "rows blocks keys *rest"]:
        """Of the remembered places and the text, what each block may see; zeros stand where there is nothing."""
        if self.blocks == 1:
            return part[:, None]
        missing = self.blocks * self.size - self.length
        padded = _padded(part, self.size - self.before, missing + self.size)
        padded = torch.unflatten(padded, 1, (self.blocks + 2, self.size))
        return torch.cat([padded[:, side : side + self.blocks] for side in range(3)], 2)

    def pairs_of(self, part: Bool[Tensor, "rows length length"]) -> Bool[Tensor, "rows blocks size keys"]:
        """Of all pairs of places, those of queries and keys of one block; False elsewhere."""
        if self.blocks == 1:
            return F.pad(part, (self.before, 0))[:, None]
        missing = self.blocks * self.size - self.length
        padded = F.pad(part, (self.size, missing + self.size, 0, missing))
        rows_of_blocks = torch.unflatten(padded, 1, (self.blocks, self.size))
        return rows_of_blocks.unfold(3, self.keys, self.size).diagonal(0, 1, 3).permute(0, 3, 1, 2)


class Stream(NamedTuple):
    """The queries of one stream, block by block, and what they see."""

    hidden: Bool[Tensor, "some_rows some_blocks some_queries keys"] | None
    """None: everything is seen."""
    blind: Bool[Tensor, "some_rows some_blocks some_queries 1"] | None = None
    """Which queries see nothing, for which nothing is hidden above. None: all see something."""
    segments: Float[Tensor, "rows blocks queries kinds"] | None = None
    """A 1 for the kind of segment that each query stands in. None: there is but one segment."""
    columns: Int[Tensor, "rows blocks queries keys"] | None = None
    """Which of the view's distances each key has. None: queries stand in a row, and that of query i and key j is the
    (size − 1 − i + j)-th."""
    slots: Int[Tensor, "rows slots"] | None = None
    """Which of the stream's places each query of the blocks is, where they do not stand in order."""
    back: Int[Tensor, "rows places"] | None = None
    """Which query of the blocks is each of the stream's places."""


class View(NamedTuple):
    """What is the same in all layers that cut the text alike."""

    cut: Cut
    content: Stream
    query: Stream | None
    distances: Int[Tensor, " distances"]
    """From that of the last query and the first key to that of the first query and the last key."""
    key_segments: Float[Tensor, "rows blocks keys kinds"] | None = None
    direction: Int[Tensor, " rows"] | None = None
    """0 for a row that is read forwards, 1 backwards. None: all rows are read alike."""


def view(
    cut: Cut, counts: Bool[Tensor, "some_rows places"], segments: Float[Tensor, "rows places kinds"] | None,
    hidden_from: Bool[Tensor, "rows length length"] | None, targets: Int[Tensor, "rows predicted"] | None,
) -> View:  # fmt: skip
    """`counts` and `segments` are of the remembered places and the text, `targets` the places of the query stream."""
    queries, keys = (torch.arange(size, device=counts.device) for size in (cut.size, cut.keys))
    itself = keys == cut.left + queries[:, None]
    hidden = ~cut.keys_of(counts)[:, :, None]
    if hidden_from is not None:
        hidden = hidden | cut.pairs_of(hidden_from)
    own = None if segments is None else segments[:, cut.before :]
    # Where only padding is hidden, the same is for all queries of a block: a place that is no padding sees itself.
    content = stream(hidden if hidden_from is None else hidden & ~itself)
    content = content._replace(segments=None if own is None else cut.queries_of(own))
    query = None
    if targets is not None:
        slots, back, place = in_blocks(cut, targets)
        if hidden_from is not None:
            hidden = hidden.gather(2, place[..., None].expand(-1, -1, -1, cut.keys))
        asked = None if own is None else picked(own, targets.clamp(min=0))
        asked = asked if asked is None or slots is None else picked(asked, slots)
        query = stream(hidden | itself[place])._replace(
            columns=cut.size - 1 - place[..., None] + keys, slots=slots, back=back,
            segments=None if asked is None else torch.unflatten(asked, 1, place.shape[1:]),
        )  # fmt: skip
    distances = torch.arange(cut.left + cut.size - 1, cut.left - cut.keys, -1, device=counts.device)
    return View(cut, content, query, distances, None if segments is None else cut.keys_of(segments))


def stream(hidden: Bool[Tensor, "some_rows some_blocks some_queries keys"]) -> Stream:
    """With those that see nothing apart."""
    blind = hidden.all(-1, keepdim=True)
    if bool(blind.any()):
        return Stream(hidden & ~blind, blind)
    return Stream(hidden if bool(hidden.any()) else None)


def in_blocks(
    cut: Cut, targets: Int[Tensor, "rows predicted"]
) -> tuple[Int[Tensor, "rows slots"] | None, Int[Tensor, "rows predicted"] | None, Int[Tensor, "rows blocks queries"]]:
    """Targets by block, in as many slots as any block needs: which target each slot holds (some, where it needs none),
    which slot holds each target, and where in its block each slot stands. None, None: there is one block."""
    places, real = targets.clamp(min=0), targets >= 0
    if cut.blocks == 1:
        return None, None, places[:, None]
    block = places // cut.size
    is_in = F.one_hot(block, cut.blocks) * real[:, :, None]
    most = int(is_in.sum(1).max()) if targets.numel() else 0
    back = block * most + ((is_in.cumsum(1) * is_in).sum(2) - 1).clamp(min=0)
    each = torch.arange(targets.shape[1], device=targets.device).expand_as(targets)
    slots = targets.new_zeros(len(targets), cut.blocks * most + 1)  # the last is for those that are no targets
    slots = slots.scatter(1, torch.where(real, back, cut.blocks * most), each)[:, :-1]
    return slots, back, torch.unflatten(places.gather(1, slots) % cut.size, 1, (cut.blocks, most))


def _padded(part: Shaped[Tensor, "rows places *rest"], before: int, after: int) -> Shaped[Tensor, "rows more *rest"]:
    return F.pad(part, (*[0, 0] * (part.ndim - 2), before, after)) if before or after else part


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
