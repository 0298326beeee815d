import math

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.exact import common_space, is_enumerable
from ebar.features.feature import Features
from ebar.maths.divergences import DIVERGENCES
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Space, context_rows
from tests.estimators.conftest import Small, Starts


def number(value: torch.Tensor) -> float:
    return float(value.detach())


def coin(probability: float) -> Tabular:
    """One token, 0 or 1."""
    return Tabular(Space(2, 1), torch.tensor([[[1 - probability, probability]]], dtype=torch.float64).log())


def test_a_coefficient_of_log_3_makes_a_fair_coin_three_quarters():
    # P = (½, ½·3): Z = 2, p = (¼, ¾).
    features = Features([Starts(1)])
    target = Tilted(coin(0.5), Linear(features, torch.tensor([math.log(3)], dtype=torch.float64)))
    assert number(exact.log_z(target)) == pytest.approx(math.log(2), abs=1e-12)
    assert exact.log_probabilities(target).exp().tolist() == [pytest.approx([0.25, 0.75])]
    assert number(exact.moments(target, features)) == pytest.approx(0.75)
    assert number(exact.divergence("total_variation", target, target.base)) == pytest.approx(0.25)
    assert number(exact.entropy(target)) == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))


def test_kl_between_coins_is_directed():
    forward = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    backward = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert number(exact.divergence("kl", coin(0.5), coin(0.75))) == pytest.approx(forward)
    assert number(exact.divergence("reverse_kl", coin(0.5), coin(0.75))) == pytest.approx(backward)


def test_a_distribution_sums_to_one_in_every_context(system: Small):
    rows = context_rows(system.context)
    torch.testing.assert_close(exact.log_z(system.base, system.context), torch.zeros(rows, dtype=torch.float64))
    if system.context is not None:  # rows 0 and 2 are the same condition, row 1 another
        z = exact.log_z(system.target, system.context)
        assert number(z[0]) == number(z[2]) != number(z[1])


def test_the_gradient_of_log_z_is_the_moments(system: Small):
    assert isinstance(system.target.energy, Linear)
    coefficients = system.target.energy.coefficients
    for row, log_z in enumerate(exact.log_z(system.target, system.context)):
        (gradient,) = torch.autograd.grad(log_z, coefficients, retain_graph=True)
        expected = exact.moments(system.target, system.features, system.context)[row]
        torch.testing.assert_close(gradient, expected.detach())


def test_the_gradient_of_kl_in_the_base_is_minus_the_mean_score(system: Small):
    """∇KL(p‖π) = −Σ p·∇log π: what distillation follows."""
    x = all_sequences(system.base.space)
    log_p = exact.log_probabilities(system.target).detach()[0]
    value = exact.divergence("kl", system.target, system.other)[0]
    (gradient,) = torch.autograd.grad(value, system.other.logits)
    (expected,) = torch.autograd.grad(-(log_p.exp() * system.other.log_prob(x)).sum(), system.other.logits)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_gradients_agree_with_differences_and_are_finite_where_a_model_forbids(kind: str):
    logits = torch.tensor([[[0.3, -0.2, 0.5], *[[0.1, 0.4, -0.6]] * 3]], dtype=torch.float64)
    p = Tabular(Space(3, 2), logits.clone())
    forbidding = logits.clone()
    forbidding[0, 0, 2] = -math.inf

    def value(shift: float) -> torch.Tensor:
        q = Tabular(Space(3, 2), forbidding + shift * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
        first, second = (q, p) if kind != "reverse_kl" else (p, q)  # the side on which the divergence is finite
        return exact.divergence(kind, first, second)[0]

    q = Tabular(Space(3, 2), forbidding)
    first, second = (q, p) if kind != "reverse_kl" else (p, q)
    (gradient,) = torch.autograd.grad(exact.divergence(kind, first, second)[0], q.logits)
    assert bool(gradient.isfinite().all())
    numerical = (number(value(1e-5)) - number(value(-1e-5))) / 2e-5
    assert float(gradient[..., 0].sum()) == pytest.approx(numerical, abs=1e-7)


def test_kl_is_infinite_where_support_is_missing():
    assert number(exact.divergence("kl", coin(0.5), coin(1.0))) == math.inf
    assert number(exact.divergence("kl", coin(1.0), coin(0.5))) == pytest.approx(math.log(2))


def test_models_of_unequal_maximal_length_meet_on_the_longer():
    generator = torch.Generator().manual_seed(1)
    short, long = (Tabular.random(Space(3, length, end=2), generator=generator) for length in (3, 4))
    assert common_space(short, long) == long.space
    assert 0 < number(exact.divergence("kl", short, long)) < math.inf
    assert number(exact.divergence("kl", long, short)) == math.inf


def test_models_that_share_no_sequence_are_refused():
    generator = torch.Generator().manual_seed(1)
    with pytest.raises(UserError, match="no sequences in common"):
        common_space(Tabular.random(Space(2, 3), generator=generator), Tabular.random(Space(2, 4), generator=generator))


def test_a_target_without_mass_is_refused():
    features = Features([Starts(0), Starts(1)])
    target = Tilted(coin(0.5), Linear(features, torch.full((2,), -math.inf, dtype=torch.float64)))
    assert number(exact.log_z(target)) == -math.inf
    with pytest.raises(UserError, match="no distribution"):
        exact.log_probabilities(target)


def test_enumerable_is_decided_without_enumerating():
    generator = torch.Generator().manual_seed(1)
    assert is_enumerable(Tabular.random(Space(2, 3), generator=generator))
