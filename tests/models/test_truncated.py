"""Numbers worked out by hand: a first token of probabilities ½, ¼, ⅛, ⅛."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.models.truncated import Truncated, keep_top_k, keep_top_p
from ebar.types import Sequences, Space
from tests.models.examples import lstm

SPACE = Space(vocabulary=4, length=1)
HALVES = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log()


def first(probabilities: Tensor = HALVES, **truncation: Any) -> list[float]:
    model = Tabular(SPACE, probabilities.reshape(1, 1, 4)).truncated(**truncation)
    every = Sequences(torch.arange(4)[:, None], torch.ones(4, dtype=torch.long))
    return [round(p, 12) for p in model.log_prob(every).exp().tolist()]


def test_top_two_of_a_half_a_quarter_and_two_eighths_are_two_thirds_and_one_third():
    assert first(top_k=2) == [round(2 / 3, 12), round(1 / 3, 12), 0, 0]


def test_a_tie_for_the_last_place_of_top_k_is_kept_whole():
    assert first(top_k=3) == [0.5, 0.25, 0.125, 0.125]


def test_top_p_stops_as_soon_as_its_probability_is_reached():
    assert first(top_p=0.5) == [1, 0, 0, 0]
    assert first(top_p=0.51) == first(top_p=0.75) == [round(2 / 3, 12), round(1 / 3, 12), 0, 0]
    assert first(top_p=0.76) == [0.5, 0.25, 0.125, 0.125]  # the eighths tie


def test_top_p_of_one_keeps_everything():
    logits = torch.tensor([[0.0, -12.0, -30.0]])
    assert keep_top_p(logits, 1.0).equal(logits)


def test_top_p_keeps_at_least_the_likeliest_token():
    assert first(top_p=1e-30) == [1, 0, 0, 0]
    assert first(torch.zeros(4, dtype=torch.float64), top_p=1e-30) == [0.25] * 4  # all tie


def test_temperature_one_half_squares_the_probabilities():
    total = 16 + 4 + 1 + 1
    assert first(temperature=0.5) == [round(p / total, 12) for p in (16, 4, 1, 1)]


def test_temperature_comes_first_then_top_k_then_top_p():
    # At temperature ½: 16, 4, 1, 1 of 22. Of the top two, 16/20 = 0.8 reaches 0.75 alone; of all four it is 0.727.
    assert first(temperature=0.5, top_p=0.75) == [0.8, 0.2, 0, 0]
    assert first(temperature=0.5, top_k=2, top_p=0.75) == [1, 0, 0, 0]


def test_rounding_does_not_break_a_tie():
    logits = torch.tensor([[1.0, 2.0, 1.0 + 2e-7]])
    assert keep_top_k(logits, 2).isfinite().tolist() == [[True, True, True]]
    assert keep_top_p(logits, 0.6).isfinite().tolist() == [[True, True, True]]


def test_not_a_number_stays_not_a_number():
    logits = torch.tensor([[1.0, math.nan, 0.0]])
    assert bool(torch.log_softmax(keep_top_k(logits, 1), -1).isnan().any())
    assert bool(torch.log_softmax(keep_top_p(logits, 0.5), -1).isnan().any())


def test_a_length_cap_moves_what_would_go_on_to_the_end():
    """Tokens {a, end}, each ½ everywhere: of at most 3, aa·end takes what is left."""
    space = Space(vocabulary=2, length=6, end=1)
    model = Tabular(space, torch.zeros(1, number_of_prefixes(space), 2, dtype=torch.float64)).truncated(length=3)
    x = Sequences(torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), torch.tensor([1, 2, 3, 4]))
    assert model.log_prob(x).exp().tolist() == [0.5, 0.25, 0.25, 0]
    assert model.space == Space(2, 3, 1)


@torch.no_grad()
def test_a_length_cap_without_an_end_is_the_law_of_the_first_tokens(generator):
    whole = Tabular.random(Space(2, 4), generator=generator)
    short = whole.truncated(length=2)
    x = Sequences(torch.tensor([[0, 1]]), torch.tensor([2]))
    ahead = torch.cartesian_prod(torch.tensor([0, 1]), torch.tensor([0, 1]))
    longer = Sequences(torch.cat([torch.tensor([[0, 1]]).expand(4, 2), ahead], 1), torch.full((4,), 4))
    torch.testing.assert_close(short.log_prob(x)[0], whole.log_prob(longer).logsumexp(0))


def test_logits_are_no_longer_free_once_a_tail_is_cut_off():
    model = lstm(Space(3, 4, 2))
    assert model.free_logits
    assert model.truncated(temperature=2.0, length=3).free_logits
    assert not model.truncated(top_k=2).free_logits
    assert not model.truncated(top_p=0.9).free_logits
    logits, _ = model.truncated(top_p=0.9).start(1)
    torch.testing.assert_close(logits.logsumexp(1), torch.zeros(1, dtype=torch.float64))


def test_truncations_compose(generator):
    model = lstm(Space(3, 4, 2))
    twice = Truncated(model.truncated(temperature=0.5), top_k=2)
    x, log_q = twice.sample_with_log_prob(50, generator=generator)
    torch.testing.assert_close(log_q, model.truncated(temperature=0.5, top_k=2).log_prob(x))


def test_the_gradient_of_a_truncated_log_prob_is_that_of_finite_differences():
    def log_prob(logits):
        return torch.log_softmax(keep_top_p(keep_top_k(logits / 0.7, 3), 0.9), -1)[:, :2]

    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_prob, logits)


@pytest.mark.parametrize(
    ("truncation", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"temperature": math.nan}, "temperature must be a positive number, got nan"),
        ({"temperature": math.inf}, "temperature must be a positive number, got inf"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must lie above 0 and not above 1, got 0.0"),
        ({"top_p": 1.5}, "top_p must lie above 0 and not above 1, got 1.5"),
        ({"length": 0}, "length must lie between 1 and the model's 4, got 0"),
        ({"length": 5}, "length must lie between 1 and the model's 4, got 5"),
    ],
)
def test_a_truncation_that_makes_no_sense_is_refused(truncation, message):
    with pytest.raises(ValueError, match=message):
        lstm(Space(3, 4, 2)).truncated(**truncation)
