"""λ(C): by hand on two fair coins, then against the plain linear energy of each context."""

import math
from typing import Any

import pytest
import torch

from ebar.energies.conditional import (
    NETWORKS,
    ConditionalLinear,
    ConstantCoefficients,
    MeanPool,
    Recurrent,
    TabularCoefficients,
    distinct_contexts,
)
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.features.counts import Length
from ebar.features.feature import Features
from ebar.features.functions import Predicate
from ebar.features.regular import Motif
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import Bounded, draw
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.rejection import Rejection
from ebar.types import Context, Energy, Sequences, Space

COIN = Space(vocabulary=2, length=1)
SPACE = Space(vocabulary=3, length=5, end=2)
TWO = Context(Sequences(torch.tensor([[0, 99], [1, 0]]), torch.tensor([1, 2])))
FEATURES = Features([Motif(motif="11", alphabet="01", end=2), Length(longest=5, end=2)])


def coin() -> Any:
    """Heads three times likelier in context 0, tails in context 1."""
    one = Features([Motif(motif="1", alphabet="01", end=None)])
    rows = torch.tensor([[math.log(3)], [-math.log(3)]], dtype=torch.float64)
    base = Tabular(COIN, torch.zeros(2, 1, 2, dtype=torch.float64))
    return Tilted(base, ConditionalLinear(one, TabularCoefficients(TWO, rows)))


def random_model(generator: torch.Generator) -> Any:
    base = Tabular.random(SPACE, conditions=2, generator=generator)
    rows = torch.tensor([[2.0, -0.3], [-1.0, 0.2]], dtype=torch.float64)
    return Tilted(base, ConditionalLinear(FEATURES, TabularCoefficients(TWO, rows)))


def test_a_coefficient_of_log_3_makes_heads_three_times_likelier_in_its_own_context_only():
    assert exact.log_probabilities(coin(), TWO).exp().tolist() == [
        pytest.approx([1 / 4, 3 / 4]),
        pytest.approx([3 / 4, 1 / 4]),
    ]
    assert exact.log_z(coin(), TWO).exp().tolist() == pytest.approx([2.0, 2 / 3])


def test_draws_are_context_major_and_each_has_its_own_context():
    x = Sequences(torch.ones(4, 1, dtype=torch.long), torch.ones(4, dtype=torch.long))
    cost = math.log(3)
    assert coin().energy(x, TWO).tolist() == pytest.approx([-cost, -cost, cost, cost])
    with pytest.raises(ValueError, match="3 sequences"):
        coin().energy(x.select(torch.arange(3)), TWO)


def test_the_energy_at_a_context_is_the_linear_energy_with_its_coefficients(generator):
    model = random_model(generator)
    for row in range(2):
        own = TWO.select(torch.tensor([row]))
        plain = Tilted(model.base, model.energy.at(own))
        assert isinstance(plain.energy, Linear)
        torch.testing.assert_close(exact.log_scores(plain, own)[0], exact.log_scores(model, TWO)[row])
    with pytest.raises(ValueError, match="select a row"):
        model.energy.at(TWO)


def test_rejection_and_look_ahead_work_in_each_context(generator):
    model = random_model(generator)
    truth = exact.moments(model, FEATURES, TWO)
    bounded = Rejection(log_bound=model.energy.log_bound(TWO))
    kept = draw(bounded, model, 4000, context=TWO, generator=generator)
    values = FEATURES(kept.x, TWO).view(2, 4000, 2)
    errors = (values.mean(1) - truth) / (values.std(1) / 4000**0.5)
    assert errors.abs().max() < 4.5  # four two-sided comparisons: a false alarm in 36,000 runs
    for row in range(2):
        own = TWO.select(torch.tensor([row]))
        ahead = draw(LookAhead(), Tilted(model.base, model.energy.at(own)), 2000, context=own, generator=generator)
        z = ahead.log_weights[0].exp()
        assert (z.mean() - exact.log_z(model, TWO)[row].exp()).abs() < 4.5 * z.std() / 2000**0.5 + 1e-9


def test_a_bound_belongs_to_contexts(generator):
    energy = random_model(generator).energy
    assert energy.log_bound(TWO.select(torch.tensor([0]))) == pytest.approx(2.0 - 0.3)  # motif there, length 1
    assert energy.log_bound(TWO.select(torch.tensor([1]))) == pytest.approx(5 * 0.2)
    assert energy.log_bound(TWO) == pytest.approx(1.7)
    assert isinstance(energy, Bounded)
    assert isinstance(energy, Energy)
    with pytest.raises(UserError, match=r"log_bound=energy\.log_bound\(context\)"):
        draw(Rejection(), random_model(generator), 5, context=TWO, generator=generator)


def test_minus_infinity_forbids_in_its_context_only():
    rows = torch.tensor([[-math.inf], [0.0]], dtype=torch.float64)
    one = Features([Motif(motif="1", alphabet="01", end=None)])
    model = Tilted(coin().base, ConditionalLinear(one, TabularCoefficients(TWO, rows)))
    assert exact.log_probabilities(model, TWO).exp().tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_features_may_look_at_the_context():
    echoes = Predicate(name="echo", function=lambda x, given: x[0] == given[0], end=None, conditional=True)
    energy = ConditionalLinear(Features([echoes]), TabularCoefficients(TWO, torch.tensor([[1.0], [2.0]])))
    x = Sequences(torch.tensor([[0], [1], [0], [1]]), torch.ones(4, dtype=torch.long))
    assert energy(x, TWO).tolist() == [-1.0, 0.0, 0.0, -2.0]


def test_contexts_that_say_the_same_are_one():
    tokens = torch.tensor([[0, 7], [1, 0], [0, 8], [1, 1]])  # the padding of rows 0 and 2 differs
    found = distinct_contexts(Context(Sequences(tokens, torch.tensor([1, 2, 1, 2]))))
    assert [found.context.given.prefix(row) for row in range(3)] == [[0], [1, 0], [1, 1]]
    assert found.which.tolist() == [0, 1, 0, 2]
    ordered = Context(Sequences(tokens, torch.tensor([1, 2, 1, 2])), torch.tensor([[0, 1], [0, 1], [1, 0], [0, 1]]))
    assert distinct_contexts(ordered).which.tolist() == [0, 1, 2, 3]  # another order is another condition


@pytest.mark.parametrize("kind", [MeanPool, Recurrent])
def test_a_network_starts_at_the_base_ignores_padding_and_reads_an_empty_context(kind):
    torch.manual_seed(0)
    network: Any = kind(2, 3, embedding=4, hidden=5)
    given = Sequences(torch.tensor([[0, 1, 1], [1, 99, 99], [99, 99, 99]]), torch.tensor([3, 1, 0]))
    assert network(Context(given)).tolist() == [[0.0] * 3] * 3
    torch.nn.init.normal_(network.out[-1].weight)
    whole = network(Context(given))
    alone = network(Context(Sequences(torch.tensor([[1]]), torch.tensor([1]))))
    torch.testing.assert_close(whole[1:2], alone)
    assert len({round(row[0], 6) for row in whole.tolist()}) == 3
    turned = network(Context(Sequences(torch.tensor([[1, 1, 0]]), torch.tensor([3]))))
    assert torch.allclose(whole[:1], turned, atol=1e-6) == (kind is MeanPool)  # only a recurrent one knows the order


def test_what_a_user_can_get_wrong_is_told():
    energy = coin().energy
    x = Sequences(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long))
    with pytest.raises(UserError, match="no context: give one"):
        energy(x)
    with pytest.raises(UserError, match=r"no row for the context \[1, 1\]"):
        energy(x, Context(Sequences(torch.tensor([[1, 1]]), torch.tensor([2]))))
    with pytest.raises(UserError, match="not a number"):
        ConditionalLinear(energy.features, TabularCoefficients(TWO, torch.tensor([[1.0], [math.nan]]))).coefficients(
            TWO
        )
    with pytest.raises(UserError, match=r"must have shape \[1, 1\], not \[1, 2\]"):
        ConditionalLinear(energy.features, ConstantCoefficients(2))(x, TWO.select(torch.tensor([0])))
    with pytest.raises(ValueError, match="are the same"):
        TabularCoefficients(
            Context(Sequences(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.long))), torch.ones(2, 1)
        )
    assert set(NETWORKS) == {"constant", "table", "mean_pool", "recurrent"}
