import math

import pytest
import torch

from ebar.evaluation.cross_entropy import bits_per_dimension, cross_entropy
from ebar.types import Sequences, Space
from tests.models.examples import lstm


class Coins:
    """Each of two pixels is 1 with probability ¼."""

    space = Space(2, 2)

    def log_prob(self, x, context=None):
        ones = x.tokens.double().sum(1)
        return ones * math.log(0.25) + (2 - ones) * math.log(0.75)

    def sample(self, n, context=None, *, generator):
        raise NotImplementedError


def test_by_hand():
    x = Sequences(torch.tensor([[0, 0], [0, 1], [1, 1], [0, 0]]), torch.full((4,), 2))
    measured = bits_per_dimension(Coins(), x)
    # 5 zeros of log₂ 4/3 bits and 3 ones of 2, over 8 dimensions.
    assert measured.value == pytest.approx((5 * math.log2(4 / 3) + 3 * 2) / 8)
    assert measured.low < measured.value < measured.high
    assert not measured.is_exact


def test_it_is_the_cross_entropy_per_token_in_bits(generator):
    model = lstm(Space(3, 4))
    x = model.sample(30, generator=generator)
    nats = cross_entropy(model, x).per_token
    bits = bits_per_dimension(model, x)
    assert bits.value * math.log(2) == pytest.approx(nats.value)
    assert (bits.high - bits.low) * math.log(2) == pytest.approx(nats.high - nats.low)
    assert bits.effective_sample_size == nats.effective_sample_size
