"""The attention of XLNet: by content, by distance to either side, and by whether two places are of one segment.

    score(i, j) = ((qᵢ + u)·kⱼ + (qᵢ + v)·r₍ᵢ₋ⱼ₎ + (qᵢ + b)·s₍ᵢⱼ₎) / √size

sᵢⱼ is one of two vectors: i and j are of the same segment, or not (Yang et al. 2019, arXiv:1906.08237, §2.4–2.5). What
all keys of a query have in common changes no softmax, so only the difference of the two counts: eᵢ = (qᵢ + b)·(same −
different) for the keys of the query's own segment. That is an inner product as well, of eᵢ at the number of i's segment
and a 1 at the number of j's, and goes into the one of queries and keys. Without segments nothing is added at all.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.transformer import picked
from ebar.backbones.transformer_layer import ACTIVATIONS, Activation, dropped
from ebar.backbones.xlnet_view import Stream, View


class XlNetAttention(nn.Module):
    """Several heads for both streams: they ask with the same weights, and look at the content."""

    def __init__(self, width: int, heads: int, size: int, *, dropout: float):
        super().__init__()
        self.heads, self.size, self.dropout = heads, size, dropout
        self.query = nn.Linear(width, heads * size, bias=False)
        self.memory = nn.Linear(width, 2 * heads * size, bias=False)
        self.position = nn.Linear(width, heads * size, bias=False)
        self.out = nn.Linear(heads * size, width, bias=False)
        self.biases = nn.Parameter(torch.zeros(3, heads, size))  # u, v and b: by content, distance and segment
        self.segment = nn.Parameter(torch.zeros(2, heads, size))  # the same, another

    def remember(self, content: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places 2 heads size"]:
        """Keys and values."""
        return self.memory(content).unflatten(2, (2, self.heads, self.size))  # type: ignore[no-any-return]

    def forward(
        self, x: Float[Tensor, "rows both width"], memory: Float[Tensor, "rows before 2 heads size"] | None, seen: View,
        vectors: Float[Tensor, "directions distances width"],
    ) -> tuple[Float[Tensor, "rows both width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        """What both streams see, which stand one after the other in x, and the memory with the content.

        `vectors` are the sinusoids of the view's distances in either direction of reading.
        """
        length = seen.cut.length
        new = self.remember(x[:, :length])
        memory = new if memory is None else torch.cat([memory, new], 1)
        keys, values = seen.cut.keys_of(memory).permute(3, 4, 0, 1, 2, 5)  # each [heads, rows, blocks, keys, size]
        if seen.key_segments is not None:
            kinds = seen.key_segments.expand(self.heads, -1, -1, -1, -1)
            keys = torch.cat([keys, kinds], -1)
        keys, values = keys.flatten(0, 2), values.flatten(0, 2)
        r = self.position(vectors).unflatten(2, (self.heads, self.size)).permute(2, 0, 3, 1)
        r = r if seen.direction is None else r[:, seen.direction]
        query = self.query(x)
        parts = [self._seen(seen.cut.queries_of(query[:, :length]), keys, values, r, seen.content)[:, :length]]
        if seen.query is not None:
            asked = query[:, length:] if seen.query.slots is None else picked(query[:, length:], seen.query.slots)
            asked = torch.unflatten(asked, 1, (seen.cut.blocks, asked.shape[1] // seen.cut.blocks))
            found = self._seen(asked, keys, values, r, seen.query)
            parts.append(found if seen.query.back is None else picked(found, seen.query.back))
        return self.out(torch.cat(parts, 1) if len(parts) > 1 else parts[0]), memory

    def _seen(
        self, query: Float[Tensor, "rows blocks queries all_heads"], keys: Float[Tensor, "batch keys more"],
        values: Float[Tensor, "batch keys size"], r: Float[Tensor, "heads directions size distances"], stream: Stream,
    ) -> Float[Tensor, "rows places all_heads"]:  # fmt: skip
        """softmax of the scores, times the values."""
        asked = query.reshape(*query.shape[:3], self.heads, self.size).permute(3, 0, 1, 2, 4).contiguous()
        heads, rows, blocks, length, size = asked.shape
        u, v, b = self.biases[:, :, None, None, None]
        to_keys, places, scale = asked + u, keys.shape[1], 1 / math.sqrt(size)
        if stream.segments is not None:
            same, other = self.segment
            e = torch.einsum("hrbqs,hs->hrbq", asked + b, same - other)
            to_keys = torch.cat([to_keys, e[..., None] * stream.segments], -1)
        batch, (directions, distances) = heads * rows * blocks, (r.shape[1], r.shape[3])
        by_distance = (asked + v).view(heads * directions, rows // directions * blocks * length, size)
        by_distance = torch.bmm(by_distance, r.flatten(0, 1))
        if stream.columns is None:  # each query's distances begin one column before those of the query before it
            shape, strides = (batch, length, places), (length * distances, distances - 1, 1)
            by_distance = by_distance.as_strided(shape, strides, length - 1)
        else:
            columns = stream.columns.expand(heads, -1, -1, -1, -1).reshape(batch, length, places)
            by_distance = by_distance.view(batch, length, distances).gather(2, columns)
        scores = torch.baddbmm(by_distance, to_keys.flatten(0, 2), keys.transpose(1, 2), beta=scale, alpha=scale)
        weights = self._weights(scores.view(heads, rows, blocks, length, places), stream)
        seen = torch.bmm(weights.flatten(0, 2), values).view(heads, rows, blocks * length, size)
        return seen.permute(1, 2, 0, 3).flatten(2)

    def _weights(
        self, scores: Float[Tensor, "heads rows blocks queries keys"], stream: Stream
    ) -> Float[Tensor, "heads rows blocks queries keys"]:
        """Zero, and no NaN, where nothing is seen. The scores are overwritten."""
        if stream.hidden is not None:
            with torch.no_grad():  # a hidden score has weight 0, so its gradient is 0 without being told
                scores.masked_fill_(stream.hidden, -math.inf)
        weights = scores.softmax(-1)
        weights = weights if stream.blind is None else weights.masked_fill(stream.blind, 0.0)
        return dropped(weights, self.dropout, self.training)


class XlNetLayer(nn.Module):
    """Attention, then two linear maps with a bend between them; each is added to its input and normalised after it.

    Dropout is on what each part adds, and between the two maps.
    """

    def __init__(
        self, width: int, attention: XlNetAttention, *, feedforward: int, dropout: float, activation: Activation,
        norm_epsilon: float,
    ):  # fmt: skip
        super().__init__()
        self.attention, self.dropout, self.activation = attention, dropout, ACTIVATIONS[activation]
        self.attention_norm = nn.LayerNorm(width, norm_epsilon)
        self.wide, self.narrow = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.feedforward_norm = nn.LayerNorm(width, norm_epsilon)

    def forward(
        self, x: Float[Tensor, "rows both width"], memory: Float[Tensor, "rows before 2 heads size"] | None, seen: View,
        vectors: Float[Tensor, "directions distances width"],
    ) -> tuple[Float[Tensor, "rows both width"], Float[Tensor, "rows places 2 heads size"]]:  # fmt: skip
        added, memory = self.attention(x, memory, seen, vectors)
        x = self.attention_norm(x + self._dropped(added))
        added = self.narrow(self._dropped(self.activation(self.wide(x))))
        return self.feedforward_norm(x + self._dropped(added)), memory

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)
