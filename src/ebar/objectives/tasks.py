"""What a labelled task minimises, each a mean over examples.

A batch is a `TaskBatch`: labelled examples of one task, and which task of the model's they are of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.data.labelled import Labelled
from ebar.models.task.model import GivesScores, Read, SpanHead, TaskModel
from ebar.types import Clock, Loss, Objective


class TaskBatch(NamedTuple):
    """Examples of one task."""

    labelled: Labelled
    task: Int[Tensor, " rows"]  # its number, the same in all rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OfScores:
    """What objectives of one head's scores have."""

    model: GivesScores
    task: str = "task"
    player: str = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification(OfScores):
    """Cross-entropy of the right class. The metric `error` is the share of examples that are given another class."""

    def losses(self, batch: TaskBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        logits = self.model.scores(batch.labelled.inputs, self.task)[:, 0]
        yield _cross_entropy(logits, batch.labelled.labels, self.player)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(OfScores):
    """Squared difference between the score of a text and its number."""

    def losses(self, batch: TaskBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        found = self.model.scores(batch.labelled.inputs, self.task)[:, 0, 0]
        loss = F.mse_loss(found, batch.labelled.labels.to(found))
        yield Loss(loss, self.player, {}, weight=float(len(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(OfScores):
    """−log of the right choice's softmax among the scores of all choices.

    With pairs (the more relevant document first, label 0) it is the pairwise loss of ranking: −log σ(s₊ − s₋).
    """

    def losses(self, batch: TaskBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        logits = self.model.scores(batch.labelled.inputs, self.task)[..., 0]
        yield _cross_entropy(logits, batch.labelled.labels, self.player)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanExtraction:
    """½·(−log p(first) − log p(last | first)) where there is an answer, and ½·logistic loss of there being one.

    A passage without an answer has the second part only. `answerability` leaves that part out: where every question
    has an answer there is nothing to learn from it.
    """

    model: TaskModel
    task: str = "task"
    answerability: bool = True
    player: str = "model"

    def losses(self, batch: TaskBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        head, read = self.model.span_head(self.task), self.model.read(batch.labelled.inputs)
        labels = batch.labelled.labels
        answered = labels[:, 0] >= 0
        nll = torch.where(answered, -span_log_probs(head, read, labels), 0.0).sum() / len(labels)
        metrics = {"span_nll": float(nll.detach())}
        value = nll / 2
        if self.answerability:
            logits = head.answerable_logits(read.hidden, read.lengths)
            logistic = F.binary_cross_entropy_with_logits(logits, answered.to(logits))
            metrics["answerable_nll"] = float(logistic.detach())
            value = value + logistic / 2
        yield Loss(value, self.player, metrics, weight=float(len(labels)))


def span_log_probs(head: SpanHead, read: Read, spans: Int[Tensor, "rows 2"]) -> Float[Tensor, " rows"]:
    """log p(first, last) of one span of each passage; that of a span (−1, −1) is a finite number without a meaning."""
    first, last = spans[:, 0], spans[:, 1]
    somewhere = read.places.long().argmax(1)  # the first place of the passage: its probability is no 0
    first = torch.where(first >= 0, first, somewhere)[:, None]
    last = torch.where(last >= 0, last, somewhere)[:, None]
    begins = head.first_log_probs(read.hidden, read.places).gather(1, first)[:, 0]
    ends = head.last_log_probs(read.hidden, read.places, first)[:, 0].gather(1, last)[:, 0]
    return begins + ends


class OfTask(Objective, Protocol):
    """An objective that knows which task of a model it is for."""

    @property
    def task(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralTasks:
    """Each batch by the objective of its own task; with several, metrics have the name of the task before them."""

    objectives: tuple[OfTask, ...]

    def losses(self, batch: TaskBatch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        objective = self.objectives[int(batch.task[0])]
        alone = len(self.objectives) == 1
        for loss in objective.losses(batch, clock, generator=generator):
            own: dict[str, Any] = loss.metrics if alone else {"loss": float(loss.value.detach()), **loss.metrics}
            named = own if alone else {f"{objective.task}.{name}": value for name, value in own.items()}
            yield loss._replace(metrics=named)


def _cross_entropy(logits: Float[Tensor, "rows outcomes"], labels: Int[Tensor, " rows"], player: str) -> Loss:
    wrong = float((logits.detach().argmax(1) != labels).double().mean())
    return Loss(F.cross_entropy(logits, labels), player, {"error": wrong}, weight=float(len(labels)))
