"""Attention to the neighbourhood: a text is cut into chunks, and each chunk sees itself and its neighbours.

Dai 2019 (thesis), chapter 5. The score of key j for query i has four terms (equation 5.2), each over √size:

    content    (W_q xᵢ)·(W_k xⱼ)        what is asked for
    bias       μ·(W_k xⱼ)               how much a key is looked at, whoever asks
    dynamic    (W_q xᵢ)·K₍ᵢ₋ⱼ₎           a kernel that depends on the query: DynamicConv
    light      ν·K₍ᵢ₋ⱼ₎                 a kernel that does not: LightConv

K₍ᵢ₋ⱼ₎ = W_R·R₍ᵢ₋ⱼ₎ is exact whichever chunks i and j lie in, and there is one softmax over all neighbours together.
What lies outside the text is masked: keys of zeros would take part in the softmax.

From left to right a query sees its own chunk up to itself and all of the chunk before: between C + 1 and 2C places,
by where in its chunk it stands. With `window` it sees exactly the last C places, wherever it stands.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.relative_attention import relative_shift, relative_sinusoids
from ebar.backbones.transformer import picked
from ebar.backbones.transformer_layer import linear

TERMS = ("content", "bias", "dynamic", "light")
Queries = tuple[Tensor | None, Tensor | None]


class LocalAttention(nn.Module):
    """The attention of one layer: `forward` from left to right, `around` to both sides."""

    def __init__(self, width: int, heads: int, *, chunk: int, window: bool = False, terms: Sequence[str] = TERMS):
        super().__init__()
        self.heads, self.size, self.chunk, self.window, self.terms = heads, width // heads, chunk, window, tuple(terms)
        asks, has_keys = not {"content", "dynamic"}.isdisjoint(terms), not {"content", "bias"}.isdisjoint(terms)
        bound = math.sqrt(3 / width)  # each of queries, keys and values as Glorot has it
        self.query = linear(width, width, bound=bound) if asks else None
        self.memory = linear(width, (2 if has_keys else 1) * width, bound=bound)
        self.positions = None
        if not {"dynamic", "light"}.isdisjoint(terms):
            self.positions = nn.Linear(width, width, bias=False)
            nn.init.uniform_(self.positions.weight, -bound, bound)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.size)) if "bias" in terms else None
        self.position_bias = nn.Parameter(torch.zeros(heads, self.size)) if "light" in terms else None
        self.out = linear(width, width)

    @property
    def kept(self) -> int:
        """How many places before a token it may look at, at most."""
        return self.chunk - 1 if self.window else 2 * self.chunk - 1

    def remember(self, inputs: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places parts heads size"]:
        """Keys, where a term has any, and values."""
        return self.memory(inputs).unflatten(2, (-1, self.heads, self.size))  # type: ignore[no-any-return]

    def queries(self, inputs: Float[Tensor, "*places width"]) -> Queries:
        """What meets the keys and what meets the distances, [*places, heads, size]; None where no term needs it."""
        asked = None if self.query is None else self.query(inputs).unflatten(-1, (self.heads, self.size))
        shape = (*inputs.shape[:-1], self.heads, self.size)
        return (
            _biased(asked if "content" in self.terms else None, self.content_bias, shape),
            _biased(asked if "dynamic" in self.terms else None, self.position_bias, shape),
        )

    def kernels(self, distances: range) -> Float[Tensor, "heads size distances"]:
        """K of some distances, a column for each."""
        assert self.positions is not None
        weight = self.positions.weight
        exact = torch.tensor(distances, device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32))
        table = self.positions(relative_sinusoids(exact, weight.shape[1]).to(weight.dtype))
        return table.unflatten(1, (self.heads, self.size)).permute(1, 2, 0)  # type: ignore[no-any-return]

    def forward(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before parts heads size"],
        place: Int[Tensor, " rows"] | int,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places parts heads size"]]:  # fmt: skip
        """What is seen, and the memory with the inputs. `place` is how many places lie before the inputs, of the last
        of which there is a memory.

        Chunks are counted from the beginning of the text, so that it may be cut anywhere between two calls.
        """
        whole = torch.cat([memory, self.remember(inputs)], 1)
        return self.out(self._seen(self.queries(inputs), whole, place)), whole

    def _seen(
        self, queries: Queries, whole: Float[Tensor, "rows places parts heads size"], place: Int[Tensor, " rows"] | int
    ) -> Float[Tensor, "rows length width"]:
        """By the last places of the whole."""
        length, chunk = _places(queries), self.chunk
        before = whole.shape[1] - length
        if length <= chunk:  # fewer scores than whole chunks would have
            hidden = ~visible(place, before, length, chunk, window=self.window, device=whole.device)[:, None]
            return self._attended(_cut(queries, 1), whole[:, None], hidden, range(whole.shape[1] - 1, -1, -1))[:, 0]
        phase = place % chunk
        chunks = -(-(length + (phase if isinstance(phase, int) else int(phase.max()) if len(phase) else 0)) // chunk)
        columns = aligned(whole, before - phase - chunk, (chunks + 1) * chunk)
        columns = torch.unflatten(columns, 1, (chunks + 1, chunk))
        both = torch.cat([columns[:, :-1], columns[:, 1:]], 2)
        # Some of the first columns may lie before the text.
        missing = torch.as_tensor(phase + chunk - known(place, before), device=whole.device).reshape(-1, 1, 1)
        column = torch.arange((chunks + 1) * chunk, device=whole.device).unfold(0, 2 * chunk, chunk)
        own = torch.ones(chunk, 2 * chunk, dtype=torch.bool, device=whole.device).tril(chunk)
        own = own.triu(1) if self.window else own
        hidden = ~((column >= missing)[:, :, None] & own)
        at = _cut(_each(queries, lambda one: aligned(one, -phase, chunks * chunk)), chunks)
        seen = self._attended(at, both, hidden, range(2 * chunk - 1, -1, -1))
        return aligned(seen.flatten(1, 2), phase, length)

    def around(
        self, inputs: Float[Tensor, "rows length width"], inside: Bool[Tensor, "rows length"] | None = None
    ) -> Float[Tensor, "rows length width"]:
        """Each place sees its own chunk and those left and right of it; what is not inside is seen by nobody.

        With `window`, it sees what is less than C places away.
        """
        length = inputs.shape[1]
        chunk = max(1, min(self.chunk, length))
        chunks = -(-length // chunk)
        sides = 1 if chunks > 1 else 0
        memory = aligned(self.remember(inputs), -sides * chunk, (chunks + 2 * sides) * chunk)
        blocks = torch.unflatten(memory, 1, (chunks + 2 * sides, chunk))
        seen_by = torch.cat([blocks[:, side : side + chunks] for side in range(1 + 2 * sides)], 2)
        counts = torch.ones_like(inputs[:1, :, 0], dtype=torch.bool) if inside is None else inside
        counts = F.pad(counts, (sides * chunk, (chunks + sides) * chunk - length))
        counts = counts.unfold(1, (1 + 2 * sides) * chunk, chunk)
        own = torch.ones(chunk, (1 + 2 * sides) * chunk, dtype=torch.bool, device=inputs.device)
        if self.window:
            own = own.triu(sides * chunk - self.chunk + 1).tril(sides * chunk + self.chunk - 1)
        at = _cut(_each(self.queries(inputs), lambda one: aligned(one, 0, chunks * chunk)), chunks)
        furthest = (1 + sides) * chunk - 1
        seen = self._attended(at, seen_by, ~(counts[:, :, None] & own), range(furthest, -furthest - 1, -1))
        return self.out(seen.flatten(1, 2)[:, :length])  # type: ignore[no-any-return]

    def _attended(
        self, queries: Queries, memory: Float[Tensor, "rows chunks keys parts heads size"],
        hidden: Bool[Tensor, "some_rows some_chunks places keys"], distances: range,
    ) -> Float[Tensor, "rows chunks places width"]:  # fmt: skip
        weights = self.weights(queries, memory, hidden, distances)
        seen = torch.bmm(weights.flatten(0, 2), _by_head(memory[:, :, :, -1]).flatten(0, 2))
        return seen.view(*weights.shape[:4], self.size).permute(1, 2, 3, 0, 4).flatten(3)

    def weights(
        self, queries: Queries, memory: Float[Tensor, "rows chunks keys parts heads size"],
        hidden: Bool[Tensor, "some_rows some_chunks places keys"], distances: range,
    ) -> Float[Tensor, "heads rows chunks places keys"]:  # fmt: skip
        """One softmax over all keys that are not hidden. The first distance is that of the last query and first key."""
        to_keys, to_distances = _each(queries, lambda one: _by_head(one * (1 / math.sqrt(self.size))))
        rows, chunks, keys = memory.shape[:3]
        shape = self.heads, rows, chunks, _places(queries, 2)
        scores = None
        if to_distances is not None:
            by_distance = torch.bmm(to_distances.flatten(1, 3), self.kernels(distances))
            scores = relative_shift(by_distance.view(*shape, len(distances)))[..., :keys]
        if to_keys is not None:
            product = to_keys.flatten(0, 2), _by_head(memory[:, :, :, 0]).flatten(0, 2).transpose(1, 2)
            together = torch.bmm(*product) if scores is None else torch.baddbmm(scores.flatten(0, 2), *product)
            scores = together.view(*shape, keys)
        assert scores is not None
        return masked_softmax(scores, hidden)


def masked_softmax(
    scores: Float[Tensor, "*batch queries keys"], hidden: Bool[Tensor, "*some some_queries keys"]
) -> Float[Tensor, "*batch queries keys"]:
    """Over what is not hidden; all zero, and no NaN, where everything is. The scores are overwritten."""
    blind = hidden.all(-1, keepdim=True)
    if not bool(blind.any()):
        return scores.masked_fill_(hidden, -math.inf).softmax(-1)
    return scores.masked_fill_(hidden & ~blind, -math.inf).softmax(-1).masked_fill(blind, 0.0)


def visible(
    place: Int[Tensor, " rows"] | int, before: int, length: int, chunk: int, *, window: bool, device: torch.device
) -> Bool[Tensor, "some_rows length places"]:
    """Which of `before` places of memory and of the `length` next ones each of the next ones sees."""
    first = torch.as_tensor(place, device=device).reshape(-1, 1, 1)
    queries = first + torch.arange(length, device=device)[:, None]
    keys = first + torch.arange(-before, length, device=device)
    since = queries - chunk + 1 if window else queries - queries % chunk - chunk
    return (keys <= queries) & (keys >= since.clamp(min=0))


def known(place: Int[Tensor, " rows"] | int, before: int) -> Int[Tensor, " rows"] | int:
    """How many of `before` places of memory are of the text: no more than it has."""
    return min(place, before) if isinstance(place, int) else place.clamp(max=before)


def aligned(
    part: Float[Tensor, "rows places ..."], first: Int[Tensor, " rows"] | int, length: int
) -> Float[Tensor, "rows length ..."]:
    """`length` places from `first` on, which each row may have of its own; outside of the part there is anything."""
    if isinstance(first, int):
        return F.pad(part, (*[0, 0] * (part.ndim - 2), -first, first + length - part.shape[1]))
    which = (first[:, None] + torch.arange(length, device=part.device)).clamp(0, part.shape[1] - 1)
    return torch.unflatten(picked(part.flatten(2), which), 2, part.shape[2:])


def _biased(asked: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    if bias is None or asked is None:
        return asked if bias is None else bias.expand(shape)
    return asked + bias


def _each(queries: Queries, change: Callable[[Tensor], Tensor]) -> Queries:
    to_keys, to_distances = queries
    return None if to_keys is None else change(to_keys), None if to_distances is None else change(to_distances)


def _cut(queries: Queries, chunks: int) -> Queries:
    return _each(queries, lambda one: torch.unflatten(one, 1, (chunks, one.shape[1] // chunks)))


def _places(queries: Queries, dimension: int = 1) -> int:
    return next(one.shape[dimension] for one in queries if one is not None)


def _by_head(part: Float[Tensor, "rows chunks places heads size"]) -> Float[Tensor, "heads rows chunks places size"]:
    return part.permute(3, 0, 1, 2, 4)
