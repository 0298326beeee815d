"""Pretraining: tokens of an input are predicted in an order drawn at random, all at once, or from left to right.

What is predicted and what sees what is decided by the data (`ebar.data.pretraining_inputs`); the loss is the same.
"""

from collections.abc import Generator as Steps
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.backbones.xlnet import XlNet, XlNetMemory, XlNetOutput
from ebar.data.pretraining_inputs import PretrainingBatch
from ebar.errors import UserError
from ebar.heads.head import target_log_probs, without_logits
from ebar.models.construction import Autoregressive
from ebar.types import Clock, Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretraining:
    """−Σ log p(target | what it may see) / number of targets: permutation language modelling (Yang et al. 2019).

    Predictions are made by the model's head from the query vectors; where the input itself is corrupted, as BERT's is,
    from the content vectors. Pieces of a batch add up, as a loss says how many targets it is a mean over.
    """

    model: Autoregressive
    next_sentence: bool = False
    """Predict also whether B follows A, from the vector at CLS by a head of its own; each row counts by its targets."""
    player: str = "model"
    memory: nn.Linear | None = field(init=False)  # that head

    def __post_init__(self) -> None:
        backbone = getattr(self.model, "backbone", None)
        if not (isinstance(self.model, Autoregressive) and isinstance(backbone, XlNet)):
            what = type(self.model if backbone is None else backbone).__name__
            raise UserError(f"{what} does not predict tokens in any order: choose xlnet.")
        head = None
        if self.next_sentence:
            head = nn.Linear(backbone.width, 1).to(next(self.model.parameters()))
            nn.init.normal_(head.weight, 0, 0.02)
            nn.init.zeros_(head.bias)
        object.__setattr__(self, "memory", head)

    @property
    def backbone(self) -> XlNet:
        found: Any = self.model.backbone
        return found  # type: ignore[no-any-return]

    def empty_memory(self, rows: int) -> XlNetMemory:
        """Of columns of which nothing has been read."""
        return self.backbone.empty_memory(rows)

    def losses(self, batch: PretrainingBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        """Of inputs that nothing is remembered for."""
        yield from self.losses_after(None, batch, clock, generator=generator)

    def losses_after(
        self, memory: XlNetMemory | None, batch: PretrainingBatch, clock: Clock, *, generator: Generator
    ) -> Steps[Loss, None, XlNetMemory | None]:
        """The loss of inputs that go on from a memory; what is then remembered is returned."""
        corrupted = bool(batch.corrupted.all())
        found: XlNetOutput = self.backbone(
            batch.tokens,
            segments=batch.segments,
            hidden_from=batch.hidden_from if bool(batch.hidden_from.any()) else None,
            targets=None if corrupted else batch.targets,
            memory=memory,
            reuse=int(batch.reuse[0]),
            backwards=batch.backwards,
        )
        vectors = found.query if found.query is not None else _at(found.content, batch.targets)
        nll, terms = self._cross_entropy(vectors, batch), batch.targets.numel()
        value, metrics = nll, {"nll_per_target": float(nll.detach() / terms)}
        if self.memory is not None:
            logits = self.memory(found.content[:, -1]).squeeze(1)  # CLS stands last
            each = F.binary_cross_entropy_with_logits(logits, batch.follows.to(logits), reduction="none").sum()
            value = value + batch.targets.shape[1] * each
            right = ((logits > 0) == batch.follows).double().mean()
            metrics |= {"next_sentence_nll": float(each.detach() / len(logits)), "next_sentence_accuracy": float(right)}
        yield Loss(value / terms, self.player, metrics, weight=float(terms))
        return found.memory

    def _cross_entropy(
        self, vectors: Float[Tensor, "rows predicted width"], batch: PretrainingBatch
    ) -> Float[Tensor, ""]:
        head, labels = self.model.head, batch.labels
        if without_logits(head, labels.numel(), self.model.space.vocabulary):
            return -target_log_probs(head, vectors, labels).sum()
        return F.cross_entropy(head(vectors).flatten(0, 1), labels.flatten(), reduction="sum")


def _at(content: Float[Tensor, "rows length width"], places: Tensor) -> Float[Tensor, "rows predicted width"]:
    return torch.take_along_dim(content, places[:, :, None], 1)
