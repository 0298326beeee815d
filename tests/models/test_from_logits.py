import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import FromLogits
from ebar.models.stepwise import by_advancing, teacher_forced
from ebar.types import Context, Sequences, Stepwise
from tests.models.examples import ENDING, FIXED, three_contexts

SPACES = pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])


class Network(nn.Module):
    """Three tokens and a beginning, number 3."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(4, 5)
        self.gru, self.out = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 3)
        with torch.no_grad():
            self.out.weight.mul_(6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.gru(self.embedding(tokens))[0])  # type: ignore[no-any-return]


def model_on(space: Any) -> FromLogits:
    return FromLogits(Network(), space, beginning=3).double()


@SPACES
def test_it_is_a_distribution(space):
    model = model_on(space)
    assert isinstance(model, Stepwise)
    with torch.no_grad():
        assert float(model.log_prob(all_sequences(space)).exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_its_log_probability_is_the_sum_of_the_networks_own():
    model = model_on(FIXED)
    with torch.no_grad():
        log_probs = model.module(torch.tensor([[3, 0, 2, 1]])).log_softmax(2)[0]
        wanted = log_probs[0, 0] + log_probs[1, 2] + log_probs[2, 1] + log_probs[3, 1]
        found = model.log_prob(Sequences(torch.tensor([[0, 2, 1, 1]]), torch.tensor([4])))
    assert float(found) == pytest.approx(float(wanted), abs=1e-12)


@SPACES
def test_step_by_step_it_is_what_it_is_in_parallel_with_prefixes_of_unequal_length(space):
    model, context = model_on(space), three_contexts()
    tokens = torch.randint(2, (6, space.length), generator=Generator().manual_seed(0))
    with torch.no_grad():
        parallel = teacher_forced(model, tokens, context)
        torch.testing.assert_close(by_advancing(model, tokens, context), parallel)
        logits, state = model.start(6, context)
        for place in range(space.length):
            torch.testing.assert_close(logits, parallel[:, place])
            if place + 1 < space.length:
                after, state = model.advance(tokens[:, place : place + 1], state)
                logits = after[:, 0]
        kept = torch.tensor([4, 1])
        row = Context(Sequences(torch.tensor([[2, 1, 0, 1], [0, 0, 0, 0]]), torch.tensor([4, 1])))
        torch.testing.assert_close(model.start(6, context)[1].select(kept).inner.prefix(0), [3, *row.given.prefix(0)])


def test_a_prefix_is_read_after_the_beginning():
    model = model_on(FIXED)
    with torch.no_grad():
        logits, _ = model.start(1, Context(Sequences(torch.tensor([[1, 2, 77]]), torch.tensor([2]))))
        torch.testing.assert_close(logits[0], model.module(torch.tensor([[3, 1, 2]]))[0, -1])


def test_draws_come_with_their_log_probability():
    model = model_on(ENDING)
    x, log_prob = model.sample_with_log_prob(50, generator=Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model.log_prob(x), log_prob)
    share = float((x.lengths == 1).double().mean())
    with torch.no_grad():
        chance = float(model.start(1)[0].softmax(1)[0, 2])
    assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / 50)


def test_a_network_of_another_vocabulary_is_told():
    with pytest.raises(UserError, match=r"\[2, 1, 4\].*not \[2, 1, 3\]"):
        FromLogits(Network(), type(FIXED)(4, 4), beginning=3).start(2)
