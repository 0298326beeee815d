"""An encoder that several tasks share, with a head for each."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.data.labelled import Inputs, Task
from ebar.errors import UserError, choose
from ebar.models.task.encoders import TaskEncoder
from ebar.models.task.heads import SpanHead, SummaryHead, passage_places

Probabilities = Float[Tensor, "rows outcomes"]


class Read(NamedTuple):
    """A batch of texts as a span head wants it."""

    hidden: Float[Tensor, "rows length width"]
    lengths: Int[Tensor, " rows"]
    places: Bool[Tensor, "rows length"]  # where an answer may stand


@runtime_checkable
class GivesScores(Protocol):
    """What classifies, measures, ranks or chooses."""

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        """For each choice of each example (one, but for multiple choice and for pairs) its scores."""
        ...


class TaskModel(nn.Module):
    """Texts → scores of classes, numbers or spans, by one encoder and a head for each task."""

    origin: dict[str, Any] | None = None  # the kind and the options of the network, where it was made by name

    def __init__(self, encoder: TaskEncoder, heads: Mapping[str, nn.Module]):
        super().__init__()
        self.encoder: Any = encoder
        for name in heads:
            if not name.isidentifier():
                raise UserError(f"{name!r} cannot be the name of a task: use letters, digits and _.")
        self.heads = nn.ModuleDict(heads)

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        head = self._head(task)
        if isinstance(head, SpanHead):
            raise UserError(f"The task {task} finds spans: it has no scores of whole texts.")
        rows, choices = inputs.lengths.shape
        tokens, segments, lengths = (part.flatten(0, 1) for part in inputs)
        found = head(self.encoder(tokens, segments, lengths), lengths)
        # A question may have fewer choices than others: what is no choice can never be chosen.
        return found.masked_fill(lengths[:, None] == 0, -torch.inf).view(rows, choices, -1)  # type: ignore[no-any-return]

    def read(self, inputs: Inputs) -> Read:
        """For a span head."""
        tokens, segments, lengths = (part[:, 0] for part in inputs)
        return Read(self.encoder(tokens, segments, lengths), lengths, passage_places(segments, lengths))

    def span_head(self, task: str) -> SpanHead:
        """That of a task of spans."""
        head = self._head(task)
        if not isinstance(head, SpanHead):
            raise UserError(f"The task {task} finds no spans.")
        return head

    def _head(self, task: str) -> nn.Module:
        return choose(dict(self.heads.items()), task, "task of this model")


def new_head(
    task: Task, width: int, *, classes: int = 0, dropout: float = 0.1, mean: bool = False
) -> SummaryHead | SpanHead:
    """For a task, its weights drawn from torch's global state."""
    if task == "span":
        return SpanHead(width, dropout=dropout)
    return SummaryHead(width, classes if task == "classification" else 1, dropout=dropout, mean=mean)
