"""Training on a stream: the memory goes along with the columns, is emptied at an epoch's start, and is kept."""

import math
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, nn

import ebar
from ebar.data.stream import Stream, Varied
from ebar.errors import UserError
from ebar.models.continued import Segment, segment_log_probs
from ebar.objectives import MaximumLikelihood
from ebar.objectives.earm import Earm
from ebar.objectives.scheduled_sampling import ScheduledSampling
from ebar.training.batches import steps_in
from ebar.training.course import Training
from ebar.training.loop import evaluate_objective, fit
from ebar.training.optimisers import Sgd
from ebar.training.players import Player
from ebar.training.streams import Columns, OnStream
from ebar.types import Space
from tests.models.carrying import KINDS, carrying_model
from tests.training.several import assert_close_everywhere
from tests.training.tiny import kept, run_stream

SPACE = Space(3, 4)
TOKENS = torch.randint(3, (43,), generator=Generator().manual_seed(0)).int()


def columns(number: int = 4, *, varied: bool = False) -> Columns:
    return Columns(stream=Stream(TOKENS, 4, Varied(deviation=1.0, shortest=2) if varied else None), columns=number)


def trained(objective: Any, model: Any, source: Columns, steps: int, accumulate: int = 1) -> tuple[Any, list[Any]]:
    """The objective after so many steps, and what they did."""
    stream = OnStream.of(objective, model, source)
    players = {
        "model": Player(module=model, optimiser=Sgd(learning_rate=0.1).build(model.parameters())),
        "objective": Player(module=stream.memory),
    }
    found = fit(stream, source, players, generator=Generator().manual_seed(1), accumulate=accumulate)
    return stream, [step.metrics for step in islice(found, steps)]


def test_batches_are_the_next_segments_and_can_be_asked_for_from_anywhere():
    source = columns()
    assert len(source) == 3
    batches = list(source.at(0, 0))
    assert [batch.x.tokens.shape for batch in batches] == [(4, 4), (4, 4), (4, 2)]
    assert torch.equal(torch.cat([batch.x.tokens for batch in batches], 1), TOKENS[:40].view(4, 10).long())
    assert [bool(batch.begins.all()) for batch in batches] == [True, False, False]
    assert torch.equal(next(iter(source.at(5, 2))).x.tokens, batches[2].x.tokens)


def test_varied_segments_scale_the_learning_rate_and_count_their_batches():
    source = columns(varied=True)
    counts = [len(list(source.at(epoch, 0))) for epoch in range(12)]
    assert counts == [source.batches_in(epoch) for epoch in range(12)]
    assert steps_in(source, 12) == sum(counts)
    model = carrying_model("lstm", SPACE)
    _, metrics = trained(MaximumLikelihood(model=model), model, source, counts[0])
    lengths = [batch.x.tokens.shape[1] for batch in source.at(0, 0)]
    assert [step["learning_rate"] for step in metrics] == pytest.approx([0.1 * length / 4 for length in lengths])


@pytest.mark.parametrize("kind", KINDS)
def test_without_learning_the_loss_of_an_epoch_is_that_of_one_reading(kind):
    """Memory of the right row, in its right order, emptied where an epoch begins: the second epoch is the first."""
    model, source = carrying_model(kind, SPACE), columns()
    judge = OnStream.of(MaximumLikelihood(model=model), model, source)
    expected = -torch.cat(list(segment_log_probs(model, TOKENS[:40].view(4, 10), segment=4)), 1).mean()
    for _ in range(2):
        with torch.no_grad():
            found = evaluate_objective(judge, source, generator=Generator())
        assert found["loss"] == pytest.approx(float(expected), abs=1e-12)


def test_an_lstm_is_trained_by_truncated_back_propagation_as_by_hand():
    """The same by nn.LSTM and nn.Linear alone, state detached between segments."""
    model = carrying_model("lstm", SPACE)
    lstm, inputs, head = nn.LSTM(4, 6, 2, batch_first=True).double(), nn.Embedding(4, 4).double(), nn.Linear(6, 3)
    head = head.double()
    lstm.load_state_dict(model.backbone.lstm.state_dict())
    inputs.load_state_dict({"weight": model.backbone.inputs.detach()})
    head.load_state_dict(model.head.linear.state_dict())
    weights = [*lstm.parameters(), *inputs.parameters(), *head.parameters()]
    _, metrics = trained(MaximumLikelihood(model=model), model, columns(), 5)
    text, state, losses = TOKENS[:40].view(4, 10).long(), None, []
    shifted = torch.cat([torch.full((4, 1), 3), text[:, :-1]], 1)
    for begin, end in ((0, 4), (4, 8), (8, 10), (0, 4), (4, 8)):
        state = None if begin == 0 else state
        hidden, (h, c) = lstm(inputs(shifted[:, begin:end]), state)
        state = h.detach(), c.detach()
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), text[:, begin:end].flatten())
        losses.append(float(loss.detach()))
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.1 * gradient
    assert [step["loss"] for step in metrics] == pytest.approx(losses, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["maximum_likelihood", "scheduled_sampling", "earm"])
def test_objectives_leave_the_memory_of_the_true_text(name, kind):
    model = carrying_model(kind, SPACE)
    objectives = {
        "maximum_likelihood": lambda: MaximumLikelihood(model=model),
        "scheduled_sampling": lambda: ScheduledSampling(model=model, k=0.3),
        "earm": lambda: Earm(model=model, window=3, draws=2, contexts="real", base="scheduled_sampling", k=0.5),
    }
    source = columns()
    stream = OnStream.of(objectives[name](), model, source)
    model.eval()
    carried = None
    for batch in source.at(0, 0):
        for loss in stream.losses(batch, ebar.types.Clock(0, 0), generator=Generator().manual_seed(2)):
            assert math.isfinite(float(loss.value.detach()))
        carried = stream.memory.carried
    plain = OnStream.of(MaximumLikelihood(model=model), model, source)
    for batch in source.at(0, 0):
        list(plain.losses(batch, ebar.types.Clock(0, 0), generator=Generator()))
    assert carried is not None
    for found, wanted in zip([*carried.memory, carried.last], [*plain.memory.carried.memory, plain.memory.carried.last],
                             strict=True):  # fmt: skip
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("varied", [False, True])
def test_parts_of_a_batch_change_neither_weights_nor_memory(kind, varied):
    found = []
    for accumulate in (1, 3):
        model = carrying_model(kind, SPACE)
        stream, metrics = trained(MaximumLikelihood(model=model), model, columns(varied=varied), 7, accumulate)
        found.append((model.state_dict(), stream.memory.state_dict(), metrics))
    assert_close_everywhere(found[1][0], found[0][0], 1e-12)
    assert_close_everywhere(found[1][1], found[0][1], 1e-12)
    assert [step["loss"] for step in found[1][2]] == pytest.approx([step["loss"] for step in found[0][2]], abs=1e-12)


def test_rows_that_begin_among_others_have_no_memory():
    model = carrying_model("lstm", SPACE)
    stream = OnStream.of(MaximumLikelihood(model=model), model, columns())
    first, second, *_ = columns().at(0, 0)
    clock = ebar.types.Clock(0, 0)
    list(stream.losses(first, clock, generator=Generator()))
    mixed = Segment(second.x, second.column, torch.tensor([False, True, False, True]), second.rate)
    before = stream._before(mixed)
    assert before.last.tolist() == [int(TOKENS[3]), 3, int(TOKENS[23]), 3]
    assert not before.memory.hidden[[1, 3]].any()
    assert before.memory.hidden[[0, 2]].all()


def test_a_run_goes_on_bit_by_bit_and_its_memory_is_in_the_checkpoint(tmp_path: Path) -> None:
    run_stream(tmp_path / "whole", steps=11)
    run_stream(tmp_path / "parts", steps=3)
    run_stream(tmp_path / "parts", steps=8)
    run_stream(tmp_path / "parts", steps=11)
    whole, parts = kept(tmp_path / "whole"), kept(tmp_path / "parts")
    for name in ("model", "objective"):  # not the random state: checks of types draw from Python's, in this process
        path = f"checkpoints/step-000000011/{name}.safetensors"
        assert parts[path] == whole[path]
    assert b"carried_memory_hidden" in whole["checkpoints/step-000000011/objective.safetensors"]
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]


def written(folder: Path, words: int = 60) -> Path:
    path = folder / "text.txt"
    path.write_text("abcab cabab\n" * words)
    return path


def test_what_cannot_be_trained_on_a_stream_is_said_in_a_sentence(tmp_path: Path) -> None:
    data = ebar.read_stream(written(tmp_path), length=8, tokeniser="characters")
    model = ebar.lstm(data, hidden=4, layers=1)
    short = Training(epochs=1, batch_size=500)
    with pytest.raises(UserError, match=r"has 648 tokens, fewer than one batch of 500 columns of 8: give more text"):
        ebar.train(model, data, training=short)
    with pytest.raises(UserError, match=r"give their number as training\.batch_size"):
        ebar.train(model, data, training=Training(epochs=1, batch_tokens=64))
    with pytest.raises(UserError, match="FromLogits cannot go on"):
        ebar.train(ebar.wrap(nn.Embedding(5, 5), data), data, training=Training(epochs=1, batch_size=2))
    with pytest.raises(UserError, match="choose negatives autoregressive"):
        ebar.train(model, data, objective=Earm(model=model, negatives="langevin"), training=Training(batch_size=2))
    objective = ScheduledSampling(model=model, mixing="top_k")
    with pytest.raises(UserError, match="choose mixing sample"):
        ebar.train(model, data, objective=objective, training=Training(batch_size=2))


def test_a_checkpoint_of_another_memory_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = ebar.read_stream(written(tmp_path), length=8, tokeniser="characters")
    folder = tmp_path / "run"
    ebar.train(ebar.lstm(data, hidden=4, layers=1), data, training=Training(epochs=1, batch_size=4), folder=folder)
    with pytest.raises(UserError, match=r"does not fit this model: it carries another memory .*options it was begun"):
        ebar.train(
            ebar.lstm(data, hidden=4, layers=1), data, training=Training(epochs=2, batch_size=5), folder=folder,
            replace_config=True,
        )  # fmt: skip
