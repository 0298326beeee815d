"""The energy of Deng et al. 2020: a scalar on the mean of a network's hidden vectors of prefix and continuation.

UniT and BiT of Deng et al. 2020: networks that read prefix and continuation for an energy.
"""

import copy
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import Reads
from ebar.backbones.local_xl import LocalBidirectional
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.backbones.xlnet import XlNetBidirectional
from ebar.data.corpus import Corpus
from ebar.energies.linear import Normed, check_bound, norm_bound, rounded, squashed
from ebar.errors import UserError
from ebar.maths.orders import arranged, places_to_come
from ebar.maths.pooling import mean_pooled
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, context_rows, draws_per_context, spread

BidirectionalNetwork = BidirectionalTransformer | LocalBidirectional | XlNetBidirectional
Pool = Literal["continuation", "all"]
NUMBERS = 2**23  # of hidden vectors, computed at a time where there is no gradient


class Encoded(NamedTuple):
    """Hidden vectors, and which of them are pooled."""

    hidden: Float[Tensor, "rows places width"]
    counts: Bool[Tensor, "rows places"]


@runtime_checkable
class Encoder(Protocol):
    """Reads [C; x]: `Causal` (UniT), `Bidirectional` (BiT), `Reencoded` (BiT*)."""

    @property
    def width(self) -> int:
        """Of a hidden vector."""

    def __call__(self, x: Sequences, context: Context | None, pool: Pool) -> Encoded:
        """Vectors of at least the places that are pooled: those of x, or of C and x.

        The context has one row for each of x's rows, or each of its rows serves equally many, context-major.
        """


class Neural(nn.Module):
    """E(x, C) = w·mean(hidden vectors) + b₀, zero at first: training sets out from q, with log Z = 0.

    The bias lets noise-contrastive estimation learn a normalised model: it is the constant that absorbs log Z.
    With a `bound` b, E(x, C) = b·tanh((w·mean + b₀)/b), the bias b₀ being inside: |E| ≤ b for any network.
    Without a gradient, as many rows at a time as keep memory bounded.
    """

    any_order = True  # encoders read the arranged text

    def __init__(self, encoder: Encoder, *, pool: Pool = "continuation", bound: float | None = None):
        super().__init__()
        check_bound(bound)
        if pool not in ("continuation", "all"):
            raise ValueError(f"hidden vectors are pooled over the continuation or over all, not over {pool}")
        self.encoder, self.pool, self.bound = encoder, pool, bound
        self.head = nn.Linear(encoder.width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def energy_bound(self) -> float | None:
        """b with |E| ≤ b: its own, or what a last layer norm allows with these weights; None where there is neither."""
        if self.bound is not None:
            return rounded(self.bound, self.head.weight.dtype)
        norm = self.encoder.last_norm() if isinstance(self.encoder, Normed) else None
        return None if norm is None else norm_bound(norm, self.head.weight, self.head.bias)

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        draws_per_context(len(x.lengths), context)  # refuses what cannot be shared evenly
        if len(x.lengths) == 0:
            return self.head.bias.new_zeros(0)
        if torch.is_grad_enabled():
            return self._energies(x, context)
        places = x.tokens.shape[1] + (0 if context is None else context.given.tokens.shape[1])
        size = max(1, NUMBERS // (max(1, places) * self.encoder.width))
        return torch.cat([self._energies(*block) for block in blocks(x, context, size)])

    def _energies(self, x: Sequences, context: Context | None) -> Float[Tensor, " batch"]:
        hidden, counts = self.encoder(x, context, self.pool)
        rows, places = len(x.lengths), counts.shape[-1]
        of_shape(counts, (rows, places), "The places that the encoder pools")
        of_shape(hidden, (rows, places, self.encoder.width), "The hidden vectors of the encoder")
        pooled = mean_pooled(hidden.to(self.head.weight.dtype), counts)
        return squashed(self.head(pooled).squeeze(1), self.bound)


def blocks(x: Sequences, context: Context | None, size: int) -> Iterator[tuple[Sequences, Context | None]]:
    """At most `size` rows at a time, each with its contexts: several of them whole, or a part of one."""
    batch, contexts = len(x.lengths), context_rows(context)
    draws = draws_per_context(batch, context)
    together = max(1, size // draws)
    every, each = torch.arange(batch, device=x.lengths.device), torch.arange(contexts, device=x.lengths.device)
    for first in range(0, contexts, together):
        own = each[first : first + together]
        rows = every[first * draws : (first + len(own)) * draws]
        for part in torch.split(rows, size) if len(own) == 1 else (rows,):
            yield x.select(part), None if context is None else context.select(own)


class Joined(NamedTuple):
    """[C; x], row by row without a gap, and which of its places are x's."""

    whole: Sequences
    continuation: Bool[Tensor, "rows length"]


def joined(x: Sequences, context: Context | None) -> Joined:
    """Each of the context-major rows after its own context, or arranged as its order says; padding comes last."""
    each = spread(context, len(x.lengths))
    if each is None:
        whole = x.trimmed()
        return Joined(whole, whole.mask())
    if each.order is not None:
        text = arranged(x, each)
        return Joined(text, text.mask() & places_to_come(each, text.tokens.shape[1]))
    given = each.given
    before, lengths = given.lengths[:, None], given.lengths + x.lengths
    both = torch.cat([given.tokens, x.tokens], 1)
    places = torch.arange(int(lengths.max()) if len(lengths) else 0, device=both.device)
    which = torch.where(places < before, places, places - before + given.tokens.shape[1]).clamp(max=both.shape[1] - 1)
    whole = Sequences(both.gather(1, which), lengths)
    return Joined(whole, whole.mask() & (places >= before))


class Causal(nn.Module):
    """UniT: a backbone that reads from left to right, each place blind to what follows it."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        if not isinstance(backbone, Reads):
            raise UserError(
                f"{type(backbone).__name__} does not read a whole sequence in one pass, so it makes no energy:"
                " take a transformer or an lstm."
            )
        self.backbone: Any = backbone

    @property
    def width(self) -> int:
        return int(self.backbone.width)

    def forward(self, x: Sequences, context: Context | None, pool: Pool) -> Encoded:
        """Each shared prefix is read once, unless its own places are pooled too, or an order mixes them with x's."""
        counted = None
        if pool == "all" or (context is not None and context.order is not None):
            (x, counted), context = joined(x, context), None
        x = x.trimmed()
        inside = x.mask()
        # Padding may hold anything; the first vector is what comes before the first token.
        vectors = self.backbone.embed(torch.where(inside, x.tokens, 0))
        counts = inside if pool == "all" or counted is None else counted
        return Encoded(self.backbone.read(vectors, context)[:, 1:], counts)


class Bidirectional(nn.Module):
    """BiT: every place of prefix and continuation sees all of both, or its neighbourhood to either side."""

    def __init__(self, backbone: BidirectionalNetwork):
        super().__init__()
        self.backbone = backbone

    @property
    def width(self) -> int:
        return self.backbone.width

    def forward(self, x: Sequences, context: Context | None, pool: Pool) -> Encoded:
        whole, continuation = joined(x, context)
        return Encoded(self.backbone(whole), continuation if pool == "continuation" else whole.mask())


class MaskedModel(nn.Module):
    """The encoder, and what it says a hidden token is; the warmed-up encoder is then the energy's.

    `tied`: a token's output vector is its input vector, so that they learn together (Press & Wolf 2017).
    """

    def __init__(self, encoder: BidirectionalNetwork, *, tied: bool = True):
        super().__init__()
        self.encoder = encoder
        self.between = nn.Sequential(nn.Linear(encoder.width, encoder.width), nn.GELU(), nn.LayerNorm(encoder.width))
        self.out = None if tied else nn.Linear(encoder.width, encoder.vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(encoder.vocabulary))

    def forward(self, x: Sequences, places: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vocabulary"]:
        """Logits of what stands at some places of the batch, numbered row after row."""
        # As a table's lookup, whose gradient is a sum in a fixed order.
        hidden = self.between(F.embedding(places, self.encoder(x).flatten(0, 1)))
        vectors = self.encoder.inputs[: self.encoder.vocabulary] if self.out is None else self.out.weight
        return F.linear(hidden, vectors, self.bias)


@runtime_checkable
class HasBackbone(Protocol):
    """A model made of a backbone and a head."""

    backbone: Any


def unit(backbone: nn.Module, *, pool: Pool = "continuation", bound: float | None = None) -> Neural:
    """An energy that reads as a language model does, with the backbone's weights as they are."""
    return Neural(Causal(backbone), pool=pool, bound=bound)


def unit_from(q: Any, *, pool: Pool = "continuation", bound: float | None = None) -> Neural:
    """UniT from a copy of q's own weights, which knows the language before it learns to tell draws from data."""
    return unit(copied_backbone(q), pool=pool, bound=bound)


def copied_backbone(q: Any) -> nn.Module:
    """A copy of q's backbone, which learns."""
    if not isinstance(q, HasBackbone):
        raise UserError(
            f"UniT starts from the backbone of one of ebar's own models, which {type(q).__name__} has not:"
            " take a pretrained network that reads the text instead."
        )
    return copy.deepcopy(q.backbone).requires_grad_()  # type: ignore[no-any-return]


def bit(backbone: BidirectionalNetwork, *, pool: Pool = "continuation", bound: float | None = None) -> Neural:
    """An energy that sees both sides of every token."""
    return Neural(Bidirectional(backbone), pool=pool, bound=bound)


def bidirectional(data: Corpus, *, pool: Pool = "continuation", bound: float | None = None, **options: Any) -> Neural:
    """The same from scratch, for the tokens of the data; options are those of `BidirectionalTransformer`, or with a
    `chunk` those of `LocalBidirectional`.

    Where the kind of data has defaults of its own, they are used. First weights come from torch's own random state.
    """
    options = {**data.defaults.get("bidirectional", {}), **options}
    made = BidirectionalTransformer if options.get("chunk") is None else LocalBidirectional
    return bit(made(data.space.vocabulary, **options), pool=pool, bound=bound)
