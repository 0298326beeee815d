"""Losses of labelled tasks by hand, and the laws of objectives."""

import math

import pytest
import torch
from torch import Generator, nn

from ebar.backbones.xlnet import XlNet
from ebar.data.labelled import Inputs, Labelled
from ebar.models.task.encoders import task_encoder
from ebar.models.task.model import TaskModel, new_head
from ebar.objectives.tasks import Choice, Classification, Regression, SeveralTasks, SpanExtraction, TaskBatch
from ebar.testing import check_objective
from ebar.types import Clock
from tests.models.test_task import inputs

START = Clock(0, 0)


class Given(nn.Module):
    """Scores that stand in the tokens."""

    def scores(self, inputs: Inputs, task: str) -> torch.Tensor:
        return inputs.tokens.double()


def batch(scores, labels, task=0) -> TaskBatch:
    tokens = torch.tensor(scores)
    read = Inputs(tokens, torch.zeros_like(tokens), torch.ones(tokens.shape[:2], dtype=torch.long))
    return TaskBatch(Labelled(read, torch.tensor(labels), torch.arange(len(labels))), torch.full((len(labels),), task))


def only(objective, batch):
    [loss] = objective.losses(batch, START, generator=Generator())
    return loss


def test_classification_by_hand():
    """Logits (2, 0), (0, 1), (3, 3); labels 0, 0, 1: log(1 + e^−2), log(1 + e), log 2; a tie goes to the first."""
    loss = only(Classification(model=Given()), batch([[[2, 0]], [[0, 1]], [[3, 3]]], [0, 0, 1]))
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.e) + math.log(2)) / 3
    assert float(loss.value) == pytest.approx(expected)
    assert loss.weight == 3.0
    assert loss.metrics == {"error": pytest.approx(2 / 3)}


def test_regression_by_hand():
    loss = only(Regression(model=Given()), batch([[[2]], [[5]]], [1.5, 7.0]))
    assert float(loss.value) == pytest.approx((0.25 + 4) / 2)
    assert loss.weight == 2.0


def test_choice_by_hand():
    """Scores 1, 2, 3 of which the second is right: log(e^−1 + 1 + e)."""
    loss = only(Choice(model=Given()), batch([[[1], [2], [3]]], [1]))
    assert float(loss.value) == pytest.approx(math.log(math.exp(-1) + 1 + math.e))


def test_of_pairs_choice_is_the_pairwise_loss_of_ranking():
    """−log σ(s₊ − s₋) of (4, 1) and (0, 2)."""
    loss = only(Choice(model=Given()), batch([[[4], [1]], [[0], [2]]], [0, 0]))
    sigmoid = [1 / (1 + math.exp(-difference)) for difference in (3, -2)]
    assert float(loss.value) == pytest.approx(-sum(map(math.log, sigmoid)) / 2)
    assert loss.metrics == {"error": 0.5}


def small(task, **options) -> TaskModel:
    torch.manual_seed(0)
    encoder = task_encoder(XlNet(12, layers=1, hidden=8, heads=2, dropout=0.0, attention_dropout=0.0))
    return TaskModel(encoder, {"task": new_head(task, 8, dropout=0.0, **options)})


TEXTS = inputs(([1, 2, 3], [4]), ([5], [6, 7]), ([2, 2], [3]), ([7, 7, 7, 7], [1]), ([4, 5], [6]))


def labelled(task):
    if task == "classification":
        return Labelled(TEXTS, torch.tensor([0, 2, 1, 1, 0]), torch.arange(5))
    if task == "regression":
        return Labelled(TEXTS, torch.tensor([0.5, 2.0, -1.0, 0.0, 3.0]), torch.arange(5))
    if task == "span":
        spans = torch.tensor([[0, 1], [0, 0], [-1, -1], [2, 3], [-1, -1]])
        return Labelled(TEXTS, spans, torch.arange(5))
    choices = Inputs(*(torch.stack([part[:, 0], part[:, 0].roll(1, 0)], 1) for part in TEXTS))
    return Labelled(choices, torch.tensor([0, 1, 0, 0, 1]), torch.arange(5))


OBJECTIVES = {
    "classification": Classification, "regression": Regression, "choice": Choice, "span": SpanExtraction,
}  # fmt: skip


@pytest.mark.parametrize("task", OBJECTIVES)
def test_laws_of_objectives_hold_pieces_of_a_batch_included(task):
    model = small(task, **({"classes": 3} if task == "classification" else {}))
    objective = OBJECTIVES[task](model=model)
    check_objective(objective, TaskBatch(labelled(task), torch.zeros(5, dtype=torch.long)), [model])


def test_the_loss_of_spans_is_that_of_its_parts():
    """½·Σ over passages with an answer of −log p(first) − log p(last | first), and ½·Σ of the logistic loss, over 5."""
    model = small("span").double().requires_grad_(False)
    head, read, own = model.span_head("task"), model.read(TEXTS), labelled("span")
    first = head.first_log_probs(read.hidden, read.places)
    total = 0.0
    for row, (begin, end) in enumerate(own.labels.tolist()):
        logit = float(head.answerable_logits(read.hidden, read.lengths)[row])
        total += math.log1p(math.exp(-logit if begin >= 0 else logit)) / 2
        if begin >= 0:
            last = head.last_log_probs(read.hidden, read.places, torch.full((5, 1), begin))[row, 0, end]
            total -= float(first[row, begin] + last) / 2
    found = only(SpanExtraction(model=model), TaskBatch(own, torch.zeros(5, dtype=torch.long)))
    assert float(found.value) == pytest.approx(total / 5)
    alone = only(SpanExtraction(model=model, answerability=False), TaskBatch(own, torch.zeros(5, dtype=torch.long)))
    assert float(alone.value) == pytest.approx(float(found.value) - found.metrics["answerable_nll"] / 2)


def test_gradients_are_finite_where_a_passage_has_no_answer():
    model = small("span")
    own = labelled("span")._replace(labels=torch.full((5, 2), -1))
    loss = only(SpanExtraction(model=model), TaskBatch(own, torch.zeros(5, dtype=torch.long)))
    loss.value.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_of_several_tasks_each_batch_has_its_own_loss_and_metrics_by_name():
    one, other = Classification(model=Given(), task="one"), Regression(model=Given(), task="other")
    both = SeveralTasks(objectives=(one, other))
    own = batch([[[2]], [[5]]], [1.5, 7.0], task=1)
    loss = only(both, own)
    assert float(loss.value) == float(only(other, own).value)
    assert loss.metrics == {"other.loss": float(loss.value)}
    classes = batch([[[2, 0]], [[0, 1]]], [0, 0])
    assert only(both, classes).metrics["one.error"] == 0.5
    alone = only(SeveralTasks(objectives=(one,)), classes)
    assert alone.metrics == only(one, classes).metrics
