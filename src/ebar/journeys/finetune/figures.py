"""How good models of labelled tasks are, with intervals: which figures, is decided by the task."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ebar.data.labelled import LabelledCorpus
from ebar.evaluation.accuracy import accuracy_by_subset, error_rate
from ebar.evaluation.answers import answer_scores
from ebar.evaluation.correlation import matthews_correlation, pearson_correlation, spearman_correlation
from ebar.evaluation.retrieval import expected_reciprocal_rank, ndcg
from ebar.journeys.finetune.predictions import BATCH, answers, asks_for_answers, outcomes, refuses_answers, spelt
from ebar.modes import evaluation_mode
from ebar.types import Estimate


@torch.no_grad()
def figures(
    members: Sequence[Any], tasks: Mapping[str, LabelledCorpus], part: str, *, batch_size: int = BATCH
) -> dict[str, Estimate]:
    """Of one model, or of several together, by name; with several tasks, the name of the task stands before."""
    found: dict[str, Estimate] = {}
    with evaluation_mode(*members):
        for name, corpus in tasks.items():
            own = _of_task(members, corpus, part, name, batch_size)
            found |= own if len(tasks) == 1 else {f"{name}.{figure}": value for figure, value in own.items()}
    return found


def _of_task(
    members: Sequence[Any], corpus: LabelledCorpus, part: str, name: str, batch_size: int
) -> dict[str, Estimate]:
    data = corpus.part(part)
    if corpus.task == "span":
        found = answers(
            members, data, task=name, answerability=asks_for_answers(corpus), refuses=refuses_answers(corpus),
            batch_size=batch_size,
        )  # fmt: skip
        examples = corpus.written[part]
        said = spelt(found, [example.text for example in examples], corpus.characters[part])
        return answer_scores(said, [[answer.text for answer in example.answers] for example in examples])
    values = outcomes(members, data, corpus.task, task=name, batch_size=batch_size)
    if corpus.task == "regression":
        numbers = values[:, 0], data.labels.double()
        return {"pearson": pearson_correlation(*numbers), "spearman": spearman_correlation(*numbers)}
    if corpus.task == "ranking":
        scores, grades = values[:, 0], data.labels.double()
        greatest = max(0.0, float(grades.max()), float(corpus.part("train").labels.max()))
        return {
            "ndcg@20": ndcg(scores, grades, data.group, k=20),
            "err@20": expected_reciprocal_rank(scores, grades, data.group, k=20, greatest=greatest),
        }
    predicted = values.argmax(1)
    by_subset = accuracy_by_subset(predicted, data.labels, [example.subset for example in corpus.written[part]])
    shares = {"accuracy" if name == "all" else f"accuracy.{name}": value for name, value in by_subset.items()}
    if corpus.task == "choice":
        return {**shares, "error": error_rate(predicted, data.labels)}
    return {
        **shares, "error": error_rate(predicted, data.labels), "matthews": matthews_correlation(predicted, data.labels)
    }  # fmt: skip
