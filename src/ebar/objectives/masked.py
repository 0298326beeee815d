"""Masked language modelling: what warms a bidirectional energy up. Devlin et al. 2019 (arXiv:1810.04805), §3.1."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Generator, Tensor

from ebar.energies.encoders import MaskedModel
from ebar.energies.neural import joined
from ebar.objectives.maximum_likelihood import Batch, parted
from ebar.types import Clock, Loss, Sequences


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
