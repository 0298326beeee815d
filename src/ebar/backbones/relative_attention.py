"""Attention by content and by distance (Dai et al. 2019, §3.3), over blocks of queries.

    score(i, j) = (qᵢ·kⱼ + qᵢ·r₍ᵢ₋ⱼ₎ + u·kⱼ + v·r₍ᵢ₋ⱼ₎) / √size        terms (a), (b), (c), (d)

r is W_r·R of the distance's sinusoids. Shaw et al. 2018 have (a) and (b) only, with an r learnt for each distance; with
absolute positions (a) is all. The terms by distance are one product for all rows, then `relative_shift`: here r has one
more column than there are keys, so that the product is what that function would have padded, and the shift is a view.

Relative positions: attention that depends on how far a key lies from a query, not on where both stand.

Dai et al. 2019, §3.3 (arXiv:1901.02860).
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from ebar.backbones.transformer_layer import dropped

Positions = Literal["relative", "absolute", "shaw"]
WIDEST = 256  # queries of a block at most, where each sees but so many keys
NARROWEST = 64


class Block(NamedTuple):
    """Some queries, the keys that any of them sees, and which of these each does not see. Both end at one place."""

    queries: slice
    keys: slice
    hidden: Bool[Tensor, "some_rows queries keys"]


class View(NamedTuple):
    """What each place of a pass sees, the same in all layers."""

    blocks: Sequence[Block]
    distances: Int[Tensor, " distances"]
    """From the largest to 0: one more than any block has keys."""


def view(
    before: int, length: int, device: torch.device, *, reach: int | None = None,
    first: Int[Tensor, " rows"] | None = None,
) -> View:  # fmt: skip
    """Of `length` places that follow `before` others: each sees itself and those before it, `reach` in all.

    `first` is the first place that counts in each row; an earlier one sees itself, and nobody looks at it. Where the
    reach is short the queries go in blocks, so that memory grows with length × reach, not with length².
    """
    size = length
    if reach is not None and before + length > reach:
        size = min(length, max(NARROWEST, min(reach, WIDEST)))
    unseen = 0 if first is None or first.numel() == 0 else int(first.max())
    blocks, known = [], {}
    for begin in range(0, max(length, 1), max(size, 1)):
        low, high = before + begin, before + min(begin + size, length)
        key = 0 if reach is None else max(0, low - reach + 1)
        shape = (low - key, high - key)
        if shape not in known:
            known[shape] = _hidden(*shape, reach, device)
        hidden = known[shape]
        if first is not None and key < unseen:
            places = torch.arange(key, high, device=device)
            itself = places == torch.arange(low, high, device=device)[:, None]
            hidden = hidden | ((places < first[:, None, None]) & ~itself)
        blocks.append(Block(slice(low - before, high - before), slice(key, high), hidden))
    widest = max(block.keys.stop - block.keys.start for block in blocks)
    return View(blocks, torch.arange(widest, -1, -1, device=device))


def _hidden(before: int, places: int, reach: int | None, device: torch.device) -> Bool[Tensor, "1 queries places"]:
    distance = torch.arange(before, places, device=device)[:, None] - torch.arange(places, device=device)
    hidden = distance < 0
    return (hidden if reach is None else hidden | (distance >= reach))[None]


class RelativeAttention(nn.Module):
    """Several heads of attention without constants: queries, keys and values from one product.

    `distances` is how many have a vector of their own, in Shaw's variant; what is farther has that of the farthest.
    """

    def __init__(self, width: int, heads: int, size: int, *, positions: Positions, distances: int, dropout: float):
        super().__init__()
        self.heads, self.size, self.dropout = heads, size, dropout
        self.into = nn.Linear(width, 3 * heads * size, bias=False)
        self.out = nn.Linear(heads * size, width, bias=False)
        self.position = nn.Linear(width, heads * size, bias=False) if positions == "relative" else None
        self.table = nn.Parameter(torch.randn(distances, heads * size) * 0.02) if positions == "shaw" else None

    def remember(self, hidden: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places 2 heads size"]:
        """Keys and values."""
        keys_and_values = F.linear(hidden, self.into.weight[self.heads * self.size :])
        return keys_and_values.view(*hidden.shape[:2], 2, self.heads, self.size)

    def by_distance(
        self, distances: Int[Tensor, " distances"], vectors: Float[Tensor, "distances width"] | None
    ) -> Float[Tensor, "heads size distances"] | None:
        """r of each distance: of its sinusoids, or learnt. None: distances do not count."""
        if self.table is not None:
            r = F.embedding(distances.clamp(max=len(self.table) - 1), self.table)
        elif self.position is not None and vectors is not None:
            r = self.position(vectors)
        else:
            return None
        return r.view(-1, self.heads, self.size).permute(1, 2, 0)

    def forward(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before 2 heads size"] | None,
        seen: View, vectors: Float[Tensor, "distances width"] | None, biases: Float[Tensor, "2 heads size"] | None,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        """What is seen among the memory and the inputs, and the memory with the inputs.

        `vectors` are the sinusoids of the view's distances, `biases` u and v.
        """
        together = self.into(inputs).unflatten(2, (3, self.heads, self.size))
        memory = together[:, :, 1:] if memory is None else torch.cat([memory, together[:, :, 1:]], 1)
        query = together[:, :, 0].permute(2, 0, 1, 3)
        keys, values = memory.permute(2, 3, 0, 1, 4)
        r = self.by_distance(seen.distances, vectors)
        parts = [
            attend(
                query[:, :, block.queries], keys[:, :, block.keys], values[:, :, block.keys], r, biases, block.hidden,
                self.dropout if self.training else 0.0,
            )
            for block in seen.blocks
        ]  # fmt: skip
        heads = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return self.out(heads.permute(1, 2, 0, 3).flatten(2)), memory


def attend(
    query: Float[Tensor, "heads rows queries size"], keys: Float[Tensor, "heads rows keys size"],
    values: Float[Tensor, "heads rows keys size"], r: Float[Tensor, "heads size distances"] | None,
    biases: Float[Tensor, "2 heads size"] | None, hidden: Bool[Tensor, "some_rows queries keys"], dropout: float = 0.0,
) -> Float[Tensor, "heads rows queries size"]:  # fmt: skip
    """softmax of the four terms, times the values; the last query stands at the last key.

    The last columns of r belong to distances …, 2, 1, 0; there are at least keys + 1.
    """
    heads, rows, length, size = query.shape
    places, scale = keys.shape[2], 1 / math.sqrt(size)
    u, v = (None, None) if biases is None else biases[:, :, None, None]
    by_content = (query if u is None else query + u).reshape(heads * rows, length, size)
    keys = keys.reshape(heads * rows, places, size).transpose(1, 2)
    if r is None:
        scores = torch.bmm(by_content * scale, keys)
    else:
        by_distance = (query if v is None else query + v).reshape(heads, rows * length, size)
        products = torch.bmm(by_distance, r[:, :, r.shape[2] - places - 1 :])
        shifted = products.view(heads * rows, length * (places + 1))[:, length:].view(heads * rows, length, places)
        scores = torch.baddbmm(shifted, by_content, keys, beta=scale, alpha=scale)
    scores = scores.view(heads, rows, length, places).masked_fill_(hidden, -math.inf)
    weights = dropped(torch.softmax(scores, -1), dropout, dropout > 0).flatten(0, 1)
    return torch.bmm(weights, values.reshape(heads * rows, places, size)).view(heads, rows, length, size)


def relative_sinusoids(distances: Float[Tensor, " some"], size: int) -> Float[Tensor, "some size"]:
    """R: sines, then cosines, of distance / 10000^(2i/size) for i = 0 … size/2 − 1.

    Not the frequencies of `transformer_layer.sinusoids`, whose last wavelength is exactly 10000·2π. They are rounded to
    float32 whatever the precision, as the original's are: a model that changes its own keeps its positions.
    """
    frequencies = 1 / 10_000 ** (torch.arange(0, size, 2, dtype=torch.float32, device=distances.device) / size)
    angles = distances[:, None] * frequencies.to(distances.dtype)
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :size]


def relative_shift(scores: Shaped[Tensor, "*batch queries distances"]) -> Shaped[Tensor, "*batch queries distances"]:
    """From scores by distance to scores by key, in time linear in their number.

    Column c of the scores belongs to distance `distances` − 1 − c. The last query stands at the last key, so that
    row i is moved to the left by queries − 1 − i columns. What then stands right of a query's own place is of
    another row: mask it.
    """
    queries, distances = scores.shape[-2:]
    padded = F.pad(scores, (1, 0)).reshape(*scores.shape[:-2], distances + 1, queries)
    return padded[..., 1:, :].reshape(scores.shape)
