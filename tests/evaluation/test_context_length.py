import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.evaluation.context_length import context_losses, relative_effective_context_lengths, relative_gain
from ebar.evaluation.speed import speed
from ebar.models.stepwise import token_log_probs
from ebar.types import Sequences, Space
from tests.models.carrying import carrying_model
from tests.models.examples import lstm

# Two models, contexts of 1, 2 and 3 tokens, four positions.
LOSSES = torch.tensor(
    [
        [[2.0, 4.0, 1.0, 6.0], [2.0, 2.0, 3.0, 3.0], [1.0, 2.0, 1.0, 3.0]],
        [[3.0, 3.0, 2.0, 5.0], [4.0, 2.0, 0.0, 5.0], [4.0, 1.0, 0.0, 2.0]],
    ],
    dtype=torch.float64,
)


def text(length: int) -> Tensor:
    return torch.randint(3, (length,), generator=Generator().manual_seed(5))


def test_gains_worked_out_by_hand():
    # The best with one token is 2, 3, 1, 5. On all positions: the first model with two tokens is better by 0, 1, 0, 2
    # (3 in position 2 is worse than the best, and counts as the best); the second by 0, 1, 1, 0.
    first, second = relative_gain(LOSSES, 0, 1, share=1.0)
    assert first.value == pytest.approx(1 - math.exp(-3 / 4))
    assert second.value == pytest.approx(1 - math.exp(-2 / 4))
    # On the harder half, positions 1 and 3: better by 1 and 2, and by 1 and 0.
    first, second = relative_gain(LOSSES, 0, 1, share=0.5)
    assert first.value == pytest.approx(1 - math.exp(-3 / 2))
    assert second.value == pytest.approx(1 - math.exp(-1 / 2))
    # From two tokens on to three, the best being 2, 2, 0, 3, all positions: better by 1 in one, and by 1 and 1 in two.
    first, second = relative_gain(LOSSES, 1, 2, share=1.0)
    assert first.value == pytest.approx(1 - math.exp(-1 / 4))
    assert second.value == pytest.approx(1 - math.exp(-2 / 4))
    assert first.low <= first.value <= first.high


def test_the_length_is_where_the_gain_falls_below_the_threshold():
    # Gains of the first model 0.53 and 0.22, of the second 0.39 and 0.39.
    lengths = [10, 20, 30]
    first, second = relative_effective_context_lengths(LOSSES, lengths, share=1.0, threshold=0.3)
    assert (first.length.value, second.length.value) == (20, 30)
    assert "longest length tried" in str(second.length.warning)
    assert "longest" not in str(first.length.warning)
    both = relative_effective_context_lengths(LOSSES, lengths, share=1.0, threshold=0.45)
    assert [own.length.value for own in both] == [20, 10]
    for own in both:
        assert own.length.low <= own.length.value <= own.length.high


def test_costs_are_those_of_the_tokens_before_and_no_more():
    model = lstm(Space(3, 6))
    stream, positions = text(40), torch.tensor([5, 9, 39])
    found = context_losses(model, stream, [1, 3, 5], positions)
    for row, length in enumerate([1, 3, 5]):
        for column, place in enumerate(positions.tolist()):
            window = stream[place - length : place + 1][None]
            expected = -token_log_probs(model, Sequences(window, torch.tensor([length + 1])))[0, -1]
            assert found[row, column].item() == pytest.approx(expected.item(), abs=1e-12)


def test_a_model_of_short_windows_gains_nothing_beyond_them():
    model = carrying_model("transformer", Space(3, 4))
    found = context_losses(model, text(40), [2, 3, 7], torch.tensor([8, 20]))
    assert torch.equal(found[1], found[2])
    assert not torch.allclose(found[0], found[1])
    lengths = relative_effective_context_lengths(found[None], [2, 3, 7], share=1.0)
    assert lengths[0].gains[1].value == 0


def test_a_memory_reads_the_context_after_nothing():
    from ebar.heads.softmax import Softmax
    from ebar.models.construction import Autoregressive
    from tests.evaluation.test_dynamic import Running

    running = Running(3)
    model = Autoregressive(running, Softmax(3, 3), Space(3, 4)).double()
    stream = text(30)
    found = context_losses(model, stream, [6], torch.tensor([10]))
    read = torch.cat([torch.tensor([3]), stream[4:10]])
    hidden = torch.tanh(running.vectors[read].sum(0))
    expected = -torch.log_softmax(model.head(hidden), -1)[stream[10]]
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="before it"):
        context_losses(lstm(Space(3, 6)), text(10), [4], torch.tensor([3]))
    with pytest.raises(UserError, match="which rise"):
        relative_effective_context_lengths(LOSSES, [3, 2, 1])
    with pytest.raises(UserError, match="share"):
        relative_gain(LOSSES, 0, 1, share=0.0)


def test_speed_is_that_of_the_best_run_after_one_to_warm_up():
    calls: list[int] = []
    times = iter([0.0, 2.0, 10.0, 10.5, 20.0, 24.0])
    found = speed(lambda: calls.append(1), 100, clock=lambda: next(times))
    assert found.tokens_per_second == 200
    assert found.seconds == (2.0, 0.5, 4.0)
    assert len(calls) == 4
