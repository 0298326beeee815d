"""What models of a task say of new texts, and how often they are right; several models together by their mean.

Of several models the probabilities of classes, choices and spans are averaged, not their logarithms: a class that one
of them excludes is still possible. Numbers and scores of relevance are averaged as they are.

How good models of labelled tasks are, with intervals: which figures, is decided by the task.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.data.labelled import Inputs, Labelled, LabelledCorpus, answer_text
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.accuracy import accuracy_by_subset, error_rate
from ebar.evaluation.answers import answer_scores
from ebar.evaluation.correlation import matthews_correlation, pearson_correlation, spearman_correlation
from ebar.evaluation.retrieval import expected_reciprocal_rank, ndcg
from ebar.models.task.model import Spans, best_spans
from ebar.modes import evaluation_mode
from ebar.training.batches import Batches, to_device
from ebar.types import Estimate

BATCH = 64  # examples computed together


class Prediction(NamedTuple):
    """What is said of one text."""

    value: str | float
    """The name of the class, the number, the score of relevance, the answer ("" for none) or the chosen option."""
    probability: float | None = None
    """Of the value; None of numbers and scores."""
    probabilities: Mapping[str, float] = {}
    """Of all classes or options, by name."""


class Answers(NamedTuple):
    """The best span of each question, over all windows of its passage."""

    row: Int[Tensor, " questions"]  # the window it was found in
    spans: Spans
    given: Bool[Tensor, " questions"]  # False: the question is said to have no answer
    probability: Float[Tensor, " questions"]  # of what is said: of the span, or of there being none


def outcomes(
    members: Sequence[Any], data: Labelled, kind: str, *, task: str, batch_size: int = BATCH
) -> Float[Tensor, "rows outcomes"]:
    """Probabilities of classes or choices; or one number, of regression and ranking."""
    found = []
    for device, inputs in _batches(members, data, batch_size):
        each = []
        for model in members:
            scores = model.scores(to_device(inputs, device), task)
            if kind == "classification":
                each.append(scores[:, 0].softmax(1))
            else:
                each.append(scores[..., 0].softmax(1) if kind == "choice" else scores[:, 0])
        found.append(torch.stack(each).mean(0).double().cpu())
    return torch.cat(found)


def answers(
    members: Sequence[Any], corpus: LabelledCorpus, data: Labelled, *, task: str, batch_size: int = BATCH
) -> Answers:
    """Of all windows of a passage the one whose span is likeliest; times that of an answer, where some window has none.

    Where some training question has none, a question may be said to have no answer, if that is likelier.
    """
    found = []
    for device, inputs in _batches(members, data, batch_size):
        read = [(model.span_head(task), model.read(to_device(inputs, device))) for model in members]
        found.append(Spans(*(part.cpu() for part in best_spans(read))))
    spans = Spans(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    weights = spans.probability * spans.answerable if asks_for_answers(corpus) else spans.probability
    questions = int(data.group.max()) + 1
    best = torch.full((questions,), -1)
    for row, question in enumerate(data.group.tolist()):
        if best[question] < 0 or weights[row] > weights[best[question]]:
            best[question] = row
    chosen = Spans(*(part[best] for part in spans))
    given = chosen.answerable >= 0.5 if refuses_answers(corpus) else torch.ones(questions, dtype=torch.bool)
    return Answers(best, chosen, given, torch.where(given, weights[best], 1 - chosen.answerable))


def asks_for_answers(corpus: LabelledCorpus) -> bool:
    """Whether some window of a training passage has no answer: then a model learns to say so."""
    return corpus.task == "span" and bool((corpus.part("train").labels[:, 0] < 0).any())


def refuses_answers(corpus: LabelledCorpus) -> bool:
    """Whether some training question has no answer in all of its passage: only then one may be said to have none."""
    return corpus.task == "span" and any(not example.answers for example in corpus.written["train"])


@torch.no_grad()
def predictions(
    members: Sequence[Any], corpus: LabelledCorpus, texts: Sequence[str | tuple[str, ...]], *, task: str,
    batch_size: int = BATCH,
) -> list[Prediction]:  # fmt: skip
    """One for each text: a string, a pair, (query, document), (passage, question) or (passage, question, *options)."""
    if not texts:
        return []
    encoded = corpus.encode(texts)
    with evaluation_mode(*members):
        if corpus.task == "span":
            assert encoded.characters is not None
            found = answers(members, corpus, encoded.labelled, task=task, batch_size=batch_size)
            passages = [str(one[0]) for one in texts]
            return [
                Prediction(text, float(probability))
                for text, probability in zip(spelt(found, passages, encoded.characters), found.probability, strict=True)
            ]
        values = outcomes(members, encoded.labelled, corpus.task, task=task, batch_size=batch_size)
    if corpus.task in ("regression", "ranking"):
        return [Prediction(float(value)) for value in values[:, 0]]
    names = [corpus.names if corpus.task == "classification" else tuple(map(str, one[2:])) for one in texts]
    return [_likeliest(own, row) for own, row in zip(names, values, strict=True)]


def spelt(found: Answers, passages: Sequence[str], characters: Int[Tensor, "rows length 2"]) -> list[str]:
    """The answers as text, "" where there is none."""
    return [
        answer_text(passage, characters[int(row)], int(first), int(last)) if given else ""
        for passage, row, first, last, given in zip(
            passages, found.row, found.spans.first, found.spans.last, found.given, strict=True
        )
    ]


def _likeliest(names: Sequence[str], row: Float[Tensor, " outcomes"]) -> Prediction:
    place = int(row.argmax())
    return Prediction(names[place], float(row[place]), dict(zip(names, row.tolist(), strict=False)))


def _batches(members: Sequence[Any], data: Labelled, batch_size: int) -> Iterator[tuple[str, Inputs]]:
    if not members:
        raise UserError("There is no model to ask: give one at least.")
    device = str(device_of(members[0]))
    for batch in Batches(data=data, batch_size=batch_size, shuffle=False).at(0, 0):
        yield device, batch.inputs


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
        found = answers(members, corpus, data, task=name, batch_size=batch_size)
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
