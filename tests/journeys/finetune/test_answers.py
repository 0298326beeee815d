"""When a question is said to have no answer, and with which probability."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ebar.journeys.finetune.journey import new_model
from ebar.journeys.finetune.predictions import asks_for_answers, predictions, refuses_answers
from ebar.models.task.encoders import task_encoder
from tests.journeys.finetune.made_up import network, span


@pytest.mark.parametrize("unanswerable", [False, True])
def test_only_where_a_training_question_has_none(unanswerable: bool, tmp_path: Path) -> None:
    """Windows without the answer are told apart while it learns; they do not make a question unanswerable."""
    corpus = replace(span(tmp_path, unanswerable), length=7, stride=1).read()
    assert asks_for_answers(corpus)
    assert refuses_answers(corpus) is unanswerable
    torch.manual_seed(0)
    model = new_model(task_encoder(network(corpus)), {"task": corpus}, head="summary", dropout=0.0, frozen=False)
    answerable = model.heads["task"].answerable.out  # type: ignore[union-attr, index]
    nn.init.constant_(answerable.bias, -3.0)
    nn.init.zeros_(answerable.weight)
    [found] = predictions([model.eval()], corpus, [("the film is anna", "who")], task="task")
    chance = float(torch.sigmoid(torch.tensor(-3.0)))
    assert (found.value == "") is unanswerable
    assert found.probability is not None
    if unanswerable:
        assert found.probability == pytest.approx(1 - chance)
    else:
        assert 0 < found.probability <= chance
