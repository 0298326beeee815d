"""Log-probabilities over orders: by hand, by enumeration of all orders, and how often intervals cover."""

import itertools
import math

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.estimators.orders import Orders, order_log_probs, over_orders
from ebar.models.ngram import Tabular
from ebar.types import Sequences, Space
from tests.models.any_order import AnyOrderTable, gaps


@torch.no_grad()
def by_every_order(model: AnyOrderTable, text: list[int | None], filling: list[int]) -> torch.Tensor:
    found = []
    for order in itertools.permutations(range(len(filling))):
        x = Sequences(torch.tensor([[filling[number] for number in order]]), torch.tensor([len(filling)]))
        found.append(model.log_prob(x, gaps(text, list(order)))[0])
    return torch.stack(found)


@pytest.mark.parametrize("mixture", [False, True])
def test_all_orders_of_a_short_text_are_taken_and_the_number_is_exact(mixture):
    model = AnyOrderTable(3, 5)
    found = order_log_probs(model, [2, 0, 1, 1], given=[1], orders=6, mixture=mixture)
    every = by_every_order(model, [None, 0, None, None], [2, 1, 1])
    wanted = every.exp().mean().log() if mixture else every.mean()
    assert found.is_exact
    assert found.value == pytest.approx(float(wanted), abs=1e-12)
    assert float(every.max() - every.min()) > 0.01  # orders do differ here


def test_the_mean_and_its_interval_by_hand():
    """Of 1 and 3: mean 2, standard error 1, and Student's quantile 12.7062 of one degree of freedom."""
    found = over_orders(torch.tensor([1.0, 3.0]).double(), exact=False)
    assert (found.value, found.effective_sample_size) == (2.0, 2.0)
    assert found.high - 2 == pytest.approx(12.7062, abs=1e-3)
    assert over_orders(torch.tensor([1.0]).double(), exact=False).warning is not None
    mixed = over_orders(torch.tensor([math.log(0.2), math.log(0.4)]).double(), exact=True, mixture=True)
    assert mixed.value == pytest.approx(math.log(0.3))


@pytest.mark.parametrize("mixture", [False, True])
def test_the_interval_covers_the_mean_over_all_orders(mixture):
    """95 % intervals of 30 orders out of 120, for 150 seeds: fewer than 130 cover once in 20,000 times at 95 %."""
    model, text = AnyOrderTable(3, 5), [2, 0, 1, 1, 2]
    every = by_every_order(model, [None] * 5, text)
    truth = float(every.exp().mean().log() if mixture else every.mean())
    covered = 0
    for seed in range(150):
        found = order_log_probs(model, text, orders=30, mixture=mixture, generator=Generator().manual_seed(seed))
        assert not found.is_exact
        covered += found.low <= truth <= found.high
    assert covered >= 130


def test_orders_are_permutations_drawn_alike():
    few = Orders.of(3, 6, Generator())
    assert few.all
    assert sorted(map(tuple, few.numbers.tolist())) == sorted(itertools.permutations(range(3)))
    some = Orders.of(4, 20, Generator().manual_seed(0))
    assert not some.all
    assert (some.numbers.sort(1).values == torch.arange(4)).all()
    assert torch.equal(some.numbers, Orders.of(4, 20, Generator().manual_seed(0)).numbers)


def test_mistakes_are_one_sentence_each():
    model = AnyOrderTable(3, 5)
    with pytest.raises(UserError, match="lie in the text"):
        order_log_probs(model, [0, 1], given=[2])
    with pytest.raises(UserError, match="nothing to score"):
        order_log_probs(model, [0, 1], given=[0, 1])
    with pytest.raises(UserError, match="At least one order"):
        order_log_probs(model, [0, 1], orders=0)
    with pytest.raises(UserError, match="how text becomes tokens"):
        order_log_probs(model, "ab")
    with pytest.raises(UserError, match="left to right only"):
        order_log_probs(Tabular.random(Space(2, 2), generator=Generator()), [0, 1])
