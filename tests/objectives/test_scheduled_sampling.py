import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.objectives import Earm, MaximumLikelihood, ScheduledSampling
from ebar.objectives.scheduled_sampling import chance_of_truth
from ebar.types import Clock, Context, Loss, Sequences, Space
from tests.models.examples import ENDING, FIXED, lstm, three_contexts


def loss_of(objective: Any, batch: Any, step: int = 0, seed: int = 1) -> Loss:
    (loss,) = objective.losses(batch, Clock(step, 0), generator=Generator().manual_seed(seed))
    return loss  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("decay", "k", "slope", "floor", "step", "chance"),
    [
        ("exponential", 0.5, 0.0, 0.0, 0, 1.0),
        ("exponential", 0.5, 0.0, 0.0, 3, 0.125),
        ("exponential", 0.5, 0.0, 0.25, 3, 0.25),
        ("sigmoid", 10.0, 0.0, 0.0, 0, 10 / 11),
        ("sigmoid", 10.0, 0.0, 0.0, 20, 10 / (10 + math.e**2)),
        ("sigmoid", 10.0, 0.0, 0.1, 10**6, 0.1),
        ("linear", 0.9, 0.1, 0.2, 0, 0.9),
        ("linear", 0.9, 0.1, 0.2, 3, 0.6),
        ("linear", 0.9, 0.1, 0.2, 9, 0.2),
    ],
)
def test_the_chance_of_the_true_token_falls_as_told(decay, k, slope, floor, step, chance):
    assert chance_of_truth(step, decay, k, slope, floor) == pytest.approx(chance, abs=1e-12)


class Recording(torch.nn.Module):
    """Next-token logits that depend on nothing; it remembers what it was given to read."""

    free_logits = True

    def __init__(self, space: Space, logits: list[float]):
        super().__init__()
        self.space = space
        self.read: list[Tensor] = []
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def start(self, rows: int, context: Context | None = None) -> Any:
        raise NotImplementedError

    advance = sample = log_prob = start

    def teacher_forced(self, tokens: Tensor, context: Context | None = None) -> Tensor:
        self.read.append(tokens.clone())
        return self.logits.expand(*tokens.shape, -1)


@pytest.fixture
def recording() -> Any:
    return Recording(Space(4, 3), [0.0, 0.0, 5.0, 0.0])


def test_the_prediction_of_a_token_takes_its_own_place(recording):
    x = Sequences(torch.tensor([[0, 1, 3], [1, 0, 0]]), torch.tensor([3, 3]))
    loss_of(ScheduledSampling(model=recording, k=0.0, mixing="argmax"), x)
    first, second = recording.read
    assert first.tolist() == x.tokens.tolist()
    assert second[:, :2].tolist() == [[2, 2], [2, 2]]  # what is read before the last place


def test_with_a_chance_of_one_it_is_maximum_likelihood_in_one_pass(recording):
    x = Sequences(torch.tensor([[0, 1, 3]]), torch.tensor([3]))
    loss = loss_of(ScheduledSampling(model=recording, label_smoothing=0.2), x)
    assert len(recording.read) == 1
    wanted = loss_of(MaximumLikelihood(model=recording, label_smoothing=0.2), x)
    assert loss.value.item() == pytest.approx(wanted.value.item(), abs=1e-12)
    assert loss.metrics["nll_per_token"] == wanted.metrics["nll_per_token"]
    assert (loss.metrics["chance_of_truth"], loss.weight) == (1.0, wanted.weight)


def test_neither_the_end_nor_padding_is_read_in_place_of_a_token():
    model: Any = Recording(Space(4, 5, end=2), [0.0, 0.0, 9.0, 0.0])  # the end is nearly certain
    x = Sequences(torch.tensor([[0, 1, 3, 2], [1, 2, 77, 77]]), torch.tensor([4, 2]))
    for mixing in ("sample", "argmax"):
        loss_of(ScheduledSampling(model=model, k=0.0, mixing=mixing), x)
        read = model.read[-1]
        assert 2 not in [*read[0, :3].tolist(), int(read[1, 0])]
        assert read[1, 1:].tolist() == [2, 0, 0]


def test_coins_fall_as_often_as_told(recording):
    x = Sequences(torch.zeros(4000, 3, dtype=torch.long), torch.full((4000,), 3))
    loss_of(ScheduledSampling(model=recording, k=0.7, mixing="argmax"), x)
    replaced = (recording.read[1][:, :2] == 2).double().mean()
    assert abs(float(replaced) - 0.3) < 5 * math.sqrt(0.21 / 8000)  # false alarms: 6e-7


def test_predictions_follow_the_models_chances(recording):
    recording.logits.data = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log()
    x = Sequences(torch.zeros(4000, 3, dtype=torch.long), torch.full((4000,), 3))
    loss_of(ScheduledSampling(model=recording, k=0.0, mixing="sample"), x)
    share = torch.bincount(recording.read[1][:, :2].reshape(-1), minlength=4) / 8000
    wanted = recording.logits.detach().exp()
    assert bool(((share - wanted).abs() < 5 * (wanted * (1 - wanted) / 8000).sqrt()).all())


@pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
def test_the_loss_is_that_of_the_true_tokens_given_what_was_read(space):
    """By hand, step by step, on a recurrent model with contexts; the predictions have no gradient."""
    model, context = lstm(space, embedding=4), three_contexts()
    x = model.sample(2, context, generator=Generator().manual_seed(3))
    loss = loss_of(ScheduledSampling(model=model, k=0.0, mixing="argmax"), (x, context))
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(x.lengths)):
        only = context.select(torch.tensor([row // 2]))
        true_logits, true_state = model.start(1, only)
        logits, state = true_logits, true_state
        for place, token in enumerate(x.prefix(row)):
            total = total - logits[0].log_softmax(0)[token]
            guess = true_logits[0].detach().clone()
            if space.end is not None:
                guess[space.end] = -math.inf
            if place + 1 < int(x.lengths[row]):
                after, true_state = model.advance(torch.tensor([[token]]), true_state)
                true_logits = after[:, 0]
                after, state = model.advance(guess.argmax().reshape(1, 1), state)
                logits = after[:, 0]
    torch.testing.assert_close(loss.value, total / x.lengths.sum())
    gradients = [torch.autograd.grad(value, model.parameters()) for value in (loss.value, total / x.lengths.sum())]
    for found, other in zip(*gradients, strict=True):
        torch.testing.assert_close(found, other)


def test_a_mixture_of_one_is_the_likeliest_and_a_mixture_of_all_is_their_mean_vector():
    model = lstm(FIXED, embedding=4)
    x = model.sample(6, generator=Generator().manual_seed(3))
    of_one, likeliest = (
        loss_of(ScheduledSampling(model=model, k=0.3, mixing=mixing, top=1), x) for mixing in ("top_k", "argmax")
    )
    torch.testing.assert_close(of_one.value, likeliest.value)
    of_all = loss_of(ScheduledSampling(model=model, k=0.0, mixing="top_k", top=99), x)
    with torch.no_grad():
        chances = model.teacher_forced(x.tokens).softmax(2)
    logits = model.from_inputs(chances[:, :-1] @ model.backbone.inputs[:-1])
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x.tokens.flatten())
    torch.testing.assert_close(of_all.value, wanted)


def test_vectors_need_a_model_that_reads_them(recording):
    x = Sequences(torch.tensor([[0, 1, 3]]), torch.tensor([3]))
    with pytest.raises(UserError, match="sample or argmax"):
        loss_of(ScheduledSampling(model=recording, k=0.0, mixing="top_k"), x)


@pytest.mark.parametrize(
    "options",
    [{"decay": "exponential", "k": 1.5}, {"decay": "sigmoid", "k": 0.5}, {"decay": "linear", "k": 2.0}, {"floor": 2.0},
     {"slope": -1.0}, {"top": 0}, {"label_smoothing": 1.0}],
)  # fmt: skip
def test_what_is_no_chance_is_refused(options, recording):
    with pytest.raises(ValueError, match=r"must|at least"):
        ScheduledSampling(model=recording, **options)


def test_held_out_data_is_measured_with_the_true_tokens(recording):
    assert ScheduledSampling(model=recording, k=0.5).validation == MaximumLikelihood(model=recording)


@pytest.mark.parametrize("kind", [ScheduledSampling, Earm])
def test_a_slope_of_none_reaches_the_floor_at_the_end_of_training(recording, kind):
    objective: Any = kind(model=recording, k=0.9, slope=None, floor=0.5)
    with pytest.raises(ValueError, match="for_steps"):
        chance_of_truth(0, objective.decay, objective.k, objective.slope, objective.floor)
    lasting = objective.for_steps(8)
    assert lasting.slope == pytest.approx(0.05)
    assert lasting.for_steps(100) is lasting


def test_before_its_first_epoch_it_is_maximum_likelihood(recording):
    x = Sequences(torch.tensor([[0, 1, 3]]), torch.tensor([3]))
    objective = ScheduledSampling(model=recording, k=0.0, start_epoch=2, label_smoothing=0.2)
    (before,) = objective.losses(x, Clock(50, 1), generator=Generator())
    (wanted,) = MaximumLikelihood(model=recording, label_smoothing=0.2).losses(x, Clock(50, 1), generator=Generator())
    assert (before.value.item(), before.metrics) == (wanted.value.item(), wanted.metrics)
    assert len(recording.read) == 2
    (after,) = objective.losses(x, Clock(51, 2), generator=Generator())
    assert after.metrics["chance_of_truth"] == 0.0
