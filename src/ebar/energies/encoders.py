"""UniT and BiT of Deng et al. 2020: networks that read prefix and continuation for an energy."""

import copy
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import Reads
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.data.corpus import Corpus
from ebar.energies.neural import Encoded, Neural, Pool, joined, trimmed
from ebar.errors import UserError
from ebar.types import Context, Sequences


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
        """Each shared prefix is read once, unless its own places are pooled too."""
        if pool == "all":
            x, context = joined(x, context).whole, None
        x = trimmed(x)
        inside = x.mask()
        # Padding may hold anything; the first vector is what comes before the first token.
        vectors = self.backbone.embed(torch.where(inside, x.tokens, 0))
        return Encoded(self.backbone.read(vectors, context)[:, 1:], inside)


class Bidirectional(nn.Module):
    """BiT: every place of prefix and continuation sees all of both."""

    def __init__(self, backbone: BidirectionalTransformer):
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

    def __init__(self, encoder: BidirectionalTransformer, *, tied: bool = True):
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
    return unit(copied(q), pool=pool, bound=bound)


def copied(q: Any) -> nn.Module:
    """A copy of q's backbone, which learns."""
    if not isinstance(q, HasBackbone):
        raise UserError(
            f"UniT starts from the backbone of one of ebar's own models, which {type(q).__name__} has not:"
            " take a pretrained network that reads the text instead."
        )
    return copy.deepcopy(q.backbone).requires_grad_()  # type: ignore[no-any-return]


def bit(backbone: BidirectionalTransformer, *, pool: Pool = "continuation", bound: float | None = None) -> Neural:
    """An energy that sees both sides of every token."""
    return Neural(Bidirectional(backbone), pool=pool, bound=bound)


def bidirectional(data: Corpus, *, pool: Pool = "continuation", bound: float | None = None, **options: Any) -> Neural:
    """The same from scratch, for the tokens of the data; options are those of `BidirectionalTransformer`.

    Where the kind of data has defaults of its own, they are used. First weights come from torch's own random state.
    """
    options = {**data.defaults.get("bidirectional", {}), **options}
    return bit(BidirectionalTransformer(data.space.vocabulary, **options), pool=pool, bound=bound)
