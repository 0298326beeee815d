"""Several fine-tuned models of the same tasks, taken together."""

from collections.abc import Sequence
from dataclasses import dataclass

from ebar.errors import UserError
from ebar.journeys.finetune.journey import Finetuned, task_name
from ebar.journeys.finetune.predictions import BATCH, Prediction, figures, predictions
from ebar.types import Estimate


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Models whose probabilities (of numbers and scores of relevance, whose values) are averaged."""

    members: tuple[Finetuned, ...]

    def evaluate(self, part: str = "test", *, batch_size: int = BATCH) -> dict[str, Estimate]:
        """As `Finetuned.evaluate`, of all models together; the data are those of the first."""
        return figures([member.model for member in self.members], self.members[0].tasks, part, batch_size=batch_size)

    def predict(
        self, texts: Sequence[str | tuple[str, ...]], *, task: str | None = None, batch_size: int = BATCH
    ) -> list[Prediction]:
        """As `Finetuned.predict`, of all models together."""
        tasks = self.members[0].tasks
        name = task_name(tasks, task)
        models = [member.model for member in self.members]
        return predictions(models, tasks[name], texts, task=name, batch_size=batch_size)


def ensemble(members: Sequence[Finetuned]) -> Ensemble:
    """Fine-tuned models of the same tasks in the same tokens, as one that averages what they say.

    Probabilities of classes, choices and spans are averaged, not their logarithms: what one model excludes stays
    possible. Numbers (regression) and scores of relevance (ranking) are averaged as they are.
    """
    if not members:
        raise UserError("An ensemble needs one fine-tuned model at least.")
    first = members[0].tasks
    for member in members[1:]:
        if list(member.tasks) != list(first):
            raise UserError(
                f"An ensemble is of models of the same tasks, not {', '.join(first)} and {', '.join(member.tasks)}."
            )
        for name, corpus in member.tasks.items():
            if corpus.encoding != first[name].encoding:
                raise UserError(
                    "An ensemble reads one encoding of the texts: fine-tune all models on data in the same tokens."
                )
    return Ensemble(members=tuple(members))
