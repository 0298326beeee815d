"""Auxiliary losses that let a deep Transformer learn without recurrence (Al-Rfou et al. 2019, arXiv:1808.04444).

Every layer predicts, not the last one only, by the model's own head; and besides the next token, the one after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.backbones.backbone import Layered, Reads
from ebar.errors import UserError
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import only_end_in_last_place
from ebar.objectives.contrastive import token_scores
from ebar.objectives.scheduled_sampling import Batch, MaximumLikelihood, inside, parted, token_cross_entropy
from ebar.types import Clock, Loss, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxiliaryLosses:
    """Σₙ (cross-entropy of the next token + `ahead_weight` · that of the one after), over the layers n that count now.

    Layer n of N counts until n/(2N) of the training is done, and the last always does: the second half of the training
    is the last layer's. All are means over the number of tokens, so that pieces of a batch add up. The token after the
    next has a head of its own, a linear map that all layers share; it is trained with the model and kept beside it.
    """

    model: Autoregressive
    intermediate: bool = True
    """Whether the layers before the last predict too."""
    ahead_weight: float = 0.5
    """Of the loss of the token after the next; 0: it is not predicted."""
    steps: int | None = None
    """Of the whole training; none: as many as there will be."""
    player: str = "model"
    memory: nn.Linear = field(init=False)

    def __post_init__(self) -> None:
        backbone = getattr(self.model, "backbone", None)
        if not (
            isinstance(self.model, Autoregressive) and isinstance(backbone, Layered) and isinstance(backbone, Reads)
        ):
            what = type(self.model if backbone is None else backbone).__name__
            raise UserError(f"{what} does not show its layers one by one: choose transformer or transformer_xl.")
        if not self.ahead_weight >= 0:
            raise ValueError(f"ahead_weight must be at least 0, not {self.ahead_weight}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        like = next(self.model.parameters())
        ahead = nn.Linear(self.model.backbone.width, self.model.space.vocabulary).to(like)
        nn.init.normal_(ahead.weight, 0, 0.02)
        nn.init.zeros_(ahead.bias)
        object.__setattr__(self, "memory", ahead)

    @property
    def validation(self) -> MaximumLikelihood:
        """What held-out data is measured by."""
        return MaximumLikelihood(model=self.model, player=self.player)

    def for_steps(self, steps: int) -> "AuxiliaryLosses":
        """The objective for a training of so many steps, its head the same."""
        if self.steps is not None:
            return self
        made = replace(self, steps=steps)
        object.__setattr__(made, "memory", self.memory)
        return made

    def counts(self, layer: int, layers: int, step: int) -> bool:
        """Whether layer `layer` of 1 … `layers` has a loss at this step."""
        if layer == layers:
            return True
        if self.steps is None:
            raise ValueError("layers stop to count at a share of the training: give steps, or call for_steps")
        return self.intermediate and step * 2 * layers < layer * self.steps

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        x, context = parted(batch)
        space = self.model.space.after(context)
        safe = inside(x, space)
        backbone: Any = self.model.backbone  # Layered, and Reads
        found = backbone.read_layers(backbone.embed(safe.tokens[:, :-1]), context)
        width, terms = safe.tokens.shape[1], int(x.lengths.sum())
        value, counting = torch.zeros((), dtype=found[-1].dtype, device=found[-1].device), 0
        nll = ahead = value
        for number, hidden in enumerate(found, start=1):
            if not self.counts(number, len(found), clock.step):
                continue
            logits = only_end_in_last_place(self.model.head(hidden[:, :width]), 0, space)
            nll, _ = token_cross_entropy(token_scores(logits, safe.tokens), x, space, context=context)
            value, counting = value + nll, counting + 1
            if self.ahead_weight > 0:
                ahead = self._ahead(hidden[:, : width - 1], safe)
                value = value + self.ahead_weight * ahead
        metrics = {"nll_per_token": float(nll.detach() / terms), "layers_counting": float(counting)}
        if self.ahead_weight > 0:
            metrics["ahead_nll_per_token"] = float(ahead.detach() / terms)
        yield Loss(value / terms, self.player, metrics, weight=float(terms))

    def _ahead(self, hidden: Float[Tensor, "rows places width"], x: Sequences) -> Float[Tensor, ""]:
        """−Σ log p(token after the next): the vector before place t predicts the token in place t + 1."""
        logits = only_end_in_last_place(self.memory(hidden), 1, self.model.space)
        scores = token_scores(logits, x.tokens[:, 1:])
        return torch.where(x.mask()[:, 1:], -scores.log_prob, 0.0).sum()
