"""Inversion: u falls into the interval of the token it draws."""

import math

import pytest
import torch
from torch import Generator

from ebar.models.drawing import GROUP, SMALL, _inverted_in_two, draw_tokens

NEARLY_ONE = 1 - 2**-53  # the largest uniform there is


def test_a_small_vocabulary_is_drawn_from_in_one_piece(generator):
    """Bit by bit what it always was, so that recorded runs come out the same."""
    log_probs = torch.log_softmax(torch.randn(1000, SMALL, generator=generator) * 3, -1)
    drawn = draw_tokens(log_probs, Generator().manual_seed(5))
    cumulative = log_probs.double().exp().cumsum(1)
    u = torch.rand(1000, 1, dtype=torch.float64, generator=Generator().manual_seed(5))
    assert torch.equal(drawn, torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True).squeeze(1))


def test_two_groups_by_hand():
    """Probabilities ¼, ¼ in the first group, ¼, ¼ in the third, none in the second."""
    log_probs = torch.full((8, 3 * GROUP - 5), -math.inf)
    tokens = [1, GROUP - 1, 2 * GROUP, 3 * GROUP - 6]
    log_probs[:, tokens] = math.log(0.25)
    u = torch.tensor([0, 0.24, 0.25, 0.49, 0.5, 0.74, 0.75, NEARLY_ONE], dtype=torch.float64)[:, None]
    # exp(log ¼) in float32 is ¼ to rounding, and all four alike: the intervals are exact.
    assert _inverted_in_two(log_probs, u).tolist() == [token for token in tokens for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("vocabulary", [SMALL + 1, 10 * GROUP, 8000])
def test_u_falls_into_the_interval_of_the_token(vocabulary, dtype, generator):
    log_probs = torch.log_softmax(torch.randn(500, vocabulary, dtype=dtype, generator=generator) * 4, -1)
    u = torch.rand(500, 1, dtype=torch.float64, generator=generator)
    u[:4] = torch.tensor([[0.0], [2**-53], [1 - 2**-52], [NEARLY_ONE]], dtype=torch.float64)
    token = _inverted_in_two(log_probs, u)[:, None]
    cumulative = log_probs.double().exp().cumsum(1)
    cumulative /= cumulative[:, -1:]
    rounding = 3e-7 if dtype == torch.float32 else 1e-14
    assert bool((u <= cumulative.gather(1, token) + rounding).all())
    before = torch.where(token == 0, 0.0, cumulative.gather(1, (token - 1).clamp(min=0)))
    assert bool((u >= before - rounding).all())
    assert draw_tokens(log_probs, generator).shape == (500,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_token_of_probability_zero_is_never_drawn(dtype, generator):
    """Holes at both ends, inside groups and of whole groups; probabilities from 1 down to what is just not 0."""
    logits = torch.randn(3000, 700, dtype=dtype, generator=generator) * 30
    hole = torch.rand(3000, 700, generator=generator) < torch.rand(3000, 1, generator=generator)
    hole[:, :3] = hole[:, 100:300] = hole[:, -70:] = True
    hole[:, 50] = False
    log_probs = torch.log_softmax(logits.masked_fill(hole, -math.inf), -1)
    for u in (0.0, 0.3, 0.999999, NEARLY_ONE):
        token = _inverted_in_two(log_probs, torch.full((3000, 1), u, dtype=torch.float64))
        assert bool((log_probs.gather(1, token[:, None]) > -math.inf).all())
        assert bool((log_probs.exp().gather(1, token[:, None]) > 0).all())


def test_a_certain_token_is_always_drawn(generator):
    for token in (0, 63, 64, 699):
        log_probs = torch.full((50, 700), -math.inf)
        log_probs[:, token] = 0
        assert set(draw_tokens(log_probs, generator).tolist()) == {token}


def test_large_vocabularies_are_drawn_from_as_often_as_they_should_be(generator):
    """Pearson's statistic on 600 tokens and 200,000 draws against its mean plus 6 standard deviations.

    A χ² of 599 degrees of freedom exceeds that about once in 10⁸ runs.
    """
    log_probs = torch.log_softmax(torch.randn(600, generator=generator), -1)
    draws = torch.cat([draw_tokens(log_probs.expand(20_000, 600), generator) for _ in range(10)])
    wanted = 200_000 * log_probs.double().exp()
    statistic = float(((torch.bincount(draws, minlength=600) - wanted) ** 2 / wanted).sum())
    assert statistic < 599 + 6 * math.sqrt(2 * 599)


def test_no_rows_are_no_tokens(generator):
    assert draw_tokens(torch.zeros(0, 1000), generator).shape == (0,)
