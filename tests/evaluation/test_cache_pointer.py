import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebar.backbones.awd_lstm import AwdLstm
from ebar.backbones.transformer import Transformer
from ebar.errors import UserError
from ebar.evaluation.cache_pointer import CachePointer, cache_pointer_cost
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.types import Context, Space

LOG = math.log


class Last(nn.Module):
    """Two tokens and the beginning; the hidden vector after a token stands in a table."""

    width = 2

    def __init__(self) -> None:
        super().__init__()
        table = torch.tensor([[LOG(2), 0.0], [0.0, 1.0], [LOG(2), 0.0]], dtype=torch.float64)
        self.table = nn.Parameter(table)

    def start(self, rows: int, context: Context | None = None) -> Any:
        raise NotImplementedError

    def advance(self, tokens: Tensor, state: Any) -> Any:
        raise NotImplementedError

    def empty_memory(self, rows: int) -> Tensor:
        return torch.zeros(rows, 1)

    def read_segment(self, tokens: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.table[tokens], memory


class Fixed(nn.Module):
    """Token 0 has a chance of ¼ after everything."""

    free_logits = True

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tensor([LOG(0.25), LOG(0.75)], dtype=torch.float64).expand(*hidden.shape[:-1], 2)


def by_table() -> Autoregressive:
    return Autoregressive(Last(), Fixed(), Space(2, 5))


STREAM = torch.tensor([0, 0, 1, 0])


@pytest.mark.parametrize("segment", [1, 2, 3, 100])
def test_by_hand(segment):
    """Vectors that predict: a, a, a, b, with a·a = log² 2 and a·b = 0; θ = 1/log 2 makes exp(θ·a·a) = 2.

    Token 1: the model alone, ¼. Token 2: all that is cached is 0, so 1: ½·¼ + ½ = ⅝. Token 3 is a 1, and none is
    cached: ½·¾ = ⅜. Token 4: b is at right angles to all, so the cache has 0 two times in three: ½·¼ + ½·⅔ = 11/24.
    """
    cost = cache_pointer_cost(by_table(), STREAM, CachePointer(window=9, theta=1 / LOG(2), weight=0.5), segment=segment)
    assert cost.alone.total == pytest.approx(-LOG(0.25 * 0.25 * 0.75 * 0.25), abs=1e-12)
    assert cost.cached.total == pytest.approx(-LOG(0.25 * 5 / 8 * 3 / 8 * 11 / 24), abs=1e-12)
    assert cost.difference.value == pytest.approx((cost.cached.total - cost.alone.total) / 4, abs=1e-12)
    assert cost.cached.tokens == 4


def total(tokens: list[int], segment: int, *, window: int) -> float:
    pointer = CachePointer(window=window, theta=1 / LOG(2), weight=0.5)
    return cache_pointer_cost(by_table(), torch.tensor(tokens), pointer, segment=segment).cached.total


@pytest.mark.parametrize("segment", [1, 3, 100])
def test_likeness_counts_by_hand(segment):
    """0, 1, 0, 0: predicting vectors a, a, b, a. The last: exp(θ·a·a) = 2 for token 0 and for token 1, then
    exp(θ·a·b) = 1 for token 0: the cache gives 0 a chance of (2 + 1)/5."""
    short = total([0, 1, 0], segment, window=9)
    whole = total([0, 1, 0, 0], segment, window=9)
    assert whole - short == pytest.approx(-LOG(0.5 * 0.25 + 0.5 * 3 / 5), abs=1e-12)
    # A window of two has forgotten the first 0: 1/3.
    short = total([0, 1, 0], segment, window=2)
    whole = total([0, 1, 0, 0], segment, window=2)
    assert whole - short == pytest.approx(-LOG(0.5 * 0.25 + 0.5 / 3), abs=1e-12)


def test_first_tokens_may_be_the_models_alone():
    cost = cache_pointer_cost(by_table(), STREAM, CachePointer(window=9, weight=0.5, unused=3))
    assert cost.cached.total == pytest.approx(-LOG(0.25 * 0.25 * 0.75 * 11 / 24), abs=1e-12)
    assert cache_pointer_cost(by_table(), STREAM, CachePointer(unused=4)).cached == cost.alone


@pytest.mark.parametrize(("weight", "expected"), [(0.0, -LOG(0.25**3 * 0.75)), (1.0, math.inf)])
def test_no_share_is_the_model_and_the_whole_share_is_the_cache(weight, expected):
    cost = cache_pointer_cost(by_table(), STREAM, CachePointer(window=9, weight=weight))
    assert cost.cached.total == pytest.approx(expected, abs=1e-12)


def lstm(space: Space) -> Autoregressive:
    torch.manual_seed(0)
    return Autoregressive(AwdLstm(7, layers=2, hidden=9, embedding=6), Softmax(6, 7), space).double()


@torch.no_grad()
def test_it_is_the_definition_in_evaluation_mode_whatever_the_segments(monkeypatch):
    model, stream = lstm(Space(7, 40)).train(), torch.randint(0, 7, (40,))
    monkeypatch.setattr("ebar.evaluation.cache_pointer.SCORES", 50)  # several pieces a segment
    pointer = CachePointer(window=8, theta=3.0, weight=0.3)
    costs = [cache_pointer_cost(model, stream, pointer, segment=segment) for segment in (1, 7, 40)]
    assert model.training
    model.eval()
    hidden: Tensor = model.backbone.read(model.backbone.embed(stream[None, :-1]))[0]  # type: ignore[attr-defined]
    own = model.head(hidden).softmax(-1)
    mixed, alone = 0.0, 0.0
    for place in range(40):
        p = own[place]
        alone -= float(p[stream[place]].log())
        if place > 0:
            window = range(max(0, place - 8), place)
            weights = torch.softmax(torch.stack([3.0 * hidden[place] @ hidden[i] for i in window]), 0)
            cache = torch.zeros(7).double().index_add(0, stream[list(window)], weights)
            p = 0.7 * p + 0.3 * cache
        mixed -= float(p[stream[place]].log())
    for cost in costs:
        assert cost.alone.total == pytest.approx(alone, abs=1e-9)
        assert cost.cached.total == pytest.approx(mixed, abs=1e-9)


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(UserError, match="carries no memory"):
        cache_pointer_cost(
            Autoregressive(Transformer(3, layers=1, hidden=4, heads=1), Softmax(4, 3), Space(3, 5)), STREAM
        )
    with pytest.raises(UserError, match="one length and no end"):
        cache_pointer_cost(lstm(Space(7, 5, end=0)), STREAM)
    with pytest.raises(UserError, match="at least one token"):
        cache_pointer_cost(by_table(), STREAM[:0])
    with pytest.raises(UserError, match="weight must be between 0 and 1"):
        CachePointer(weight=1.5)
