"""Masked language modelling: what warms a bidirectional energy up. Devlin et al. 2019 (arXiv:1810.04805), §3.1."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.joined import joined
from ebar.objectives.maximum_likelihood import Batch, parted
from ebar.types import Clock, Loss, Sequences


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


class Hidden(NamedTuple):
    """A batch with some tokens hidden."""

    x: Sequences
    chosen: Bool[Tensor, "batch length"]


def hide(x: Sequences, *, share: float, vocabulary: int, mask_token: int, generator: Generator) -> Hidden:
    """In each row `share` of the tokens, at least one, are chosen; 80 % of those become the mask, 10 % any token.

    The rest stay as they are, so that the encoder cannot trust what it sees there either.
    """
    inside, device = x.mask(), x.tokens.device
    keys = torch.rand(x.tokens.shape, generator=generator, device=generator.device).to(device)
    fates = torch.rand(x.tokens.shape, generator=generator, device=generator.device).to(device)
    others = torch.randint(0, vocabulary, x.tokens.shape, generator=generator, device=generator.device).to(device)
    wanted = (share * x.lengths).round().clamp(min=1)
    rank = keys.masked_fill(~inside, 2.0).argsort(1).argsort(1)
    chosen = (rank < wanted[:, None]) & inside
    tokens = torch.where(chosen & (fates < 0.8), mask_token, x.tokens)
    tokens = torch.where(chosen & (fates >= 0.9), others, tokens)
    return Hidden(Sequences(tokens, x.lengths), chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """Mean over the chosen tokens of −log p(token | everything else) of prefix and continuation together."""

    model: MaskedModel
    share: float = 0.15
    """Share of the tokens that is to be guessed."""
    player: str = "model"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must lie above 0 and not above 1, not {self.share}")

    @property
    def validation(self) -> "Masked":
        """What held-out data is measured by."""
        return self

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        whole, encoder = joined(*parted(batch)).whole, self.model.encoder
        x, chosen = hide(
            whole, share=self.share, vocabulary=encoder.vocabulary, mask_token=encoder.mask_token, generator=generator
        )
        places = chosen.flatten().nonzero().squeeze(1)
        truth = whole.tokens.flatten()[places]
        logits = self.model(x, places)
        right = float((logits.detach().argmax(1) == truth).double().mean())
        yield Loss(F.cross_entropy(logits, truth), self.player, {"masked_accuracy": right}, weight=float(len(places)))
