"""The cost of a long text, read in segments with a carried memory."""

import math
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.segments import at_evaluation, cost_by_blocks, segment_cost
from ebar.models.continued import segment_log_probs
from ebar.models.stepwise import token_log_probs
from ebar.types import Sequences, Space
from tests.models.carrying import KINDS, Summing, carrying_model

SPACE = Space(3, 4)
TEXT = torch.randint(3, (203,), generator=Generator().manual_seed(0))


def test_an_lstm_in_one_column_costs_what_one_long_pass_says():
    model = carrying_model("lstm", SPACE)
    longer = carrying_model("lstm", Space(3, 203))
    exact = -float(token_log_probs(longer, Sequences(TEXT[None], torch.tensor([203]))).sum().detach())
    for segment in (None, 1, 50, 500):
        found = segment_cost(model, TEXT, segment=segment)
        assert found.tokens == 203
        assert found.total == pytest.approx(exact, abs=1e-9)
        assert found.per_token.value == pytest.approx(exact / 203, abs=1e-12)
    assert found.perplexity.value == pytest.approx(math.exp(exact / 203))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_begin_without_memory_and_the_remainder_is_left_out(kind):
    model = carrying_model(kind, SPACE)
    found = segment_cost(model, TEXT, columns=4)
    assert found.tokens == 200
    alone = [segment_cost(model, TEXT[begin : begin + 50]).total for begin in range(0, 200, 50)]
    assert found.total == pytest.approx(sum(alone), abs=1e-9)


def test_the_published_protocol_does_not_score_the_first_token_of_a_column():
    model = carrying_model("lstm", SPACE)
    each = torch.cat(list(segment_log_probs(model, TEXT[:200].view(4, 50), segment=4)), 1)
    found = segment_cost(model, TEXT, columns=4, first=False)
    assert found.tokens == 196
    assert found.total == pytest.approx(-float(each[:, 1:].sum()), abs=1e-9)


def test_a_memory_of_another_length_shares_the_weights_and_changes_what_is_seen():
    model = carrying_model("summing", SPACE)
    assert isinstance(model.backbone, Summing)
    longer: Any = at_evaluation(model, 10)
    assert longer.backbone.inputs is model.backbone.inputs
    assert model.backbone.memory == 3
    whole = segment_cost(model, TEXT, segment=203).total  # one segment sees everything
    enough = segment_cost(model, TEXT, memory=203).total
    assert enough == pytest.approx(whole, abs=1e-9)
    assert segment_cost(model, TEXT, memory=3).total == pytest.approx(segment_cost(model, TEXT).total, abs=1e-12)
    assert abs(segment_cost(model, TEXT).total - whole) > 1


def test_what_has_no_such_memory_says_so():
    model = carrying_model("lstm", SPACE)
    with pytest.raises(UserError, match="Lstm has no memory whose length could be chosen"):
        segment_cost(model, TEXT, memory=5)
    with pytest.raises(UserError, match="cannot be evaluated with this memory: this one cannot see"):
        segment_cost(carrying_model("summing", SPACE), TEXT, same_length=True)
    with pytest.raises(UserError, match="203 tokens, too few for 204 columns"):
        segment_cost(model, TEXT, columns=204)


def test_blocks_are_contiguous_and_make_the_interval():
    """Two blocks of cost 1 and 3 a token: their mean is 2, its deviation 1, and Student's quantile for two 12.706."""
    found = cost_by_blocks(torch.tensor([1.0, 1.0, 1.0, 3.0, 3.0, 3.0]), blocks=2)
    assert (found.per_token.value, found.total, found.tokens) == (2.0, 12.0, 6)
    assert found.per_token.high == pytest.approx(2 + 12.7062, abs=1e-4)
    mixed = cost_by_blocks(torch.tensor([1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0]), blocks=4)
    assert mixed.per_token.low == mixed.per_token.high == 2.0


def test_an_interval_over_blocks_covers_where_tokens_depend_on_one_another():
    """Costs that stay for 50 tokens each: over tokens the interval would be seven times too narrow.

    Of 200 intervals at 95 % about 10 miss; more than 26 would, once in 100,000.
    """
    generator = Generator().manual_seed(1)
    missed = 0
    for _ in range(200):
        costs = torch.randn(1600, generator=generator).repeat_interleave(50) + 5
        found = cost_by_blocks(costs).per_token
        missed += not found.low <= 5 <= found.high
    assert missed <= 26
