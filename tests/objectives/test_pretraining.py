"""The loss of pretraining: by hand for a head that knows nothing, what it depends on, and its laws."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.data.pretraining_inputs import Form, PretrainingBatch, read_inputs
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.maths.rows import take
from ebar.models.construction import Autoregressive, assemble
from ebar.objectives import Pretraining
from ebar.testing import check_objective
from ebar.training.streams import OnStream, PretrainingColumns
from ebar.types import Clock, Space
from tests.training.tiny import to_pretrain_on

START = Clock(step=0, epoch=0)
WAYS = ["permutation", "denoising", "left_to_right"]


def xlnet(memory: int = 0, **options: Any) -> Any:
    torch.manual_seed(1)
    options = {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0, **options}
    made = assemble(Space(13, 16), "xlnet", {**options, "memory": memory}, "softmax", {"tied": True})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # so that everything matters
    return made.double()


def batch(predict: str = "permutation", columns: int = 4, number: int = 0, **form: Any) -> PretrainingBatch:
    text = to_pretrain_on(form=Form(length=16, reuse=6, predict=predict, **form))  # type: ignore[arg-type]
    return read_inputs(text, text.backwards(), columns, number, seed=3, epoch=0)


def loss(objective: Pretraining, inputs: PretrainingBatch) -> Any:
    return next(iter(objective.losses(inputs, START, generator=Generator())))


@pytest.mark.parametrize("predict", WAYS)
def test_laws(predict):
    model = xlnet()
    check_objective(Pretraining(model=model, next_sentence=True), batch(predict, 5), [model])


@pytest.mark.parametrize("predict", WAYS)
@torch.no_grad()
def test_a_head_that_knows_nothing_by_hand(predict):
    """Each target costs log 13; whether B follows, log 2 for each row, which counts as much as a target does."""
    model = xlnet()
    for parameter in [*model.head.parameters(), model.backbone.embedding]:
        parameter.zero_()
    objective = Pretraining(model=model, next_sentence=True)
    assert objective.memory is not None
    objective.memory.weight.zero_()
    inputs = batch(predict)
    found = loss(objective, inputs)
    assert found.value.item() == pytest.approx(math.log(13) + math.log(2))
    assert found.metrics["nll_per_target"] == pytest.approx(math.log(13))
    assert found.metrics["next_sentence_nll"] == pytest.approx(math.log(2))
    assert found.weight == inputs.targets.numel()


@torch.no_grad()
def test_the_cross_entropy_of_the_targets_from_the_right_vectors():
    model = xlnet()
    for predict in WAYS:
        inputs = batch(predict)
        out = model.backbone(
            inputs.tokens, segments=inputs.segments, hidden_from=inputs.hidden_from, targets=inputs.targets,
            backwards=inputs.backwards,
        )  # fmt: skip
        vectors = out.query
        if predict == "denoising":
            vectors = torch.stack([row[at] for row, at in zip(out.content, inputs.targets, strict=True)])
        log_probs = torch.log_softmax(model.head(vectors), -1)
        expected = -sum(
            log_probs[row, place, label].item()
            for row, labels in enumerate(inputs.labels.tolist())
            for place, label in enumerate(labels)
        )
        found = loss(Pretraining(model=model), inputs)
        assert found.value.item() == pytest.approx(expected / inputs.labels.numel(), abs=1e-12)
        assert set(found.metrics) == {"nll_per_target"}


@torch.no_grad()
def test_next_sentences_by_hand():
    objective = Pretraining(model=xlnet(), next_sentence=True)
    assert objective.memory is not None
    objective.memory.weight.zero_()
    objective.memory.bias.fill_(0.7)
    inputs = batch(columns=6)
    share = inputs.follows.double().mean().item()
    assert 0 < share < 1
    found = loss(objective, inputs)
    expected = -share * F.logsigmoid(torch.tensor(0.7)).item() - (1 - share) * F.logsigmoid(torch.tensor(-0.7)).item()
    assert found.metrics["next_sentence_nll"] == pytest.approx(expected, abs=1e-6)
    assert found.metrics["next_sentence_accuracy"] == pytest.approx(share)


@pytest.mark.parametrize("predict", ["permutation", "left_to_right"])
@torch.no_grad()
def test_a_target_is_not_in_what_it_is_predicted_from(predict):
    """Its own token changed, its query vector stays: one target in a row, or the last one from left to right."""
    model = xlnet()
    inputs = batch(predict, partial=16)
    changed, rows, last = inputs.tokens.clone(), torch.arange(4), inputs.targets[:, -1]
    changed[rows, last] = (changed[rows, last] + 1) % 9
    before, after = (
        model.backbone(tokens, segments=inputs.segments, hidden_from=inputs.hidden_from, targets=inputs.targets).query
        for tokens in (inputs.tokens, changed)
    )
    assert torch.equal(before[:, -1], after[:, -1])


@torch.no_grad()
def test_what_is_remembered_matters_and_is_the_reused_part():
    model = xlnet(memory=9)
    objective = Pretraining(model=model)
    first, second = batch(number=0), batch(number=1)
    steps = objective.losses_after(None, first, START, generator=Generator())
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    memory = end.value.value
    assert memory.filled.tolist() == [6] * 4
    embedded = F.embedding(first.tokens[:, :6], model.backbone.embedding)
    assert torch.equal(memory.inputs[:, 0, -6:], embedded)
    fresh = loss(objective, second)
    after = next(objective.losses_after(memory, second, START, generator=Generator()))
    assert abs(fresh.value - after.value) > 1e-4


def test_other_networks_are_refused():
    other = Autoregressive(Lstm(13, layers=1, hidden=6), Softmax(6, 13), Space(13, 16))
    with pytest.raises(UserError, match="Lstm does not predict tokens in any order: choose xlnet"):
        Pretraining(model=other)


@torch.no_grad()
def test_each_column_goes_on_from_its_own_memory_and_begins_anew_with_its_document():
    """Documents of 50 tokens, columns of 65: row by row, with a memory of its own, the losses are the same."""
    model = xlnet(memory=9)
    objective = Pretraining(model=model)
    columns = PretrainingColumns(text=to_pretrain_on(form=Form(length=16, reuse=6)), columns=4)
    on_stream = OnStream.of(objective, model, columns)
    alone = [objective.empty_memory(1) for _ in range(4)]
    begun = 0
    for number, inputs in enumerate(columns.at(0, 0)):
        (together,) = on_stream.losses(inputs, START, generator=Generator())
        expected = 0.0
        for row in range(4):
            one = take(inputs, slice(row, row + 1))
            if bool(one.begins) and number:
                begun += 1
            memory = objective.empty_memory(1) if bool(one.begins) else alone[row]
            found = objective.backbone(
                one.tokens, segments=one.segments, hidden_from=one.hidden_from, targets=one.targets, memory=memory,
                reuse=6, backwards=one.backwards,
            )  # fmt: skip
            expected += F.cross_entropy(model.head(found.query[0]), one.labels[0]).item() / 4
            alone[row] = found.memory
        assert together.value.item() == pytest.approx(expected, abs=1e-9)
    assert begun >= 3
    torch.testing.assert_close(on_stream.memory.carried.inputs, torch.cat([memory.inputs for memory in alone]))
