"""What the places of a text see of one another in XLNet: all of it, or their neighbourhood.

A text is cut into blocks of queries, each with the keys that any of them may see. With full attention there is one
block, and its keys are the memory and the text; with chunks of C places there is one block for each chunk, and its keys
are the chunk and its two neighbours: left of the first chunk are the last C places of the memory.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ebar.backbones.transformer import picked


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
