"""Costs of adversarial games: by hand, and by the exact optimum on a space of three, expectations as counted means."""

import math

import pytest
import torch
from torch import Tensor

from ebar.errors import UserError
from ebar.objectives.adversarial_costs import COSTS, DIVERGENCES, Costs, Ebgan, EnergyGap, FGan, OriginalGan

DATA, SAMPLES = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 2])  # p_data = (½, ¼, ¼), p_gen = (¼, ¼, ½)


def value(costs: Costs, energy: Tensor) -> Tensor:
    return costs.discriminator(energy[DATA], energy[SAMPLES])


def at_optimum(costs: Costs, energy: list[float]) -> None:
    """The gradient of the discriminator's cost in its table is 0, and neighbours are no better."""
    table = torch.tensor(energy, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(value(costs, table), table)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-9)
    with torch.no_grad():
        for step in torch.eye(3, dtype=torch.float64) * 0.05:
            for near in (table + step, table - step):
                assert float(value(costs, near)) > float(value(costs, table))


@pytest.mark.parametrize("name", COSTS)
def test_every_entry_has_two_costs_that_pull_apart(name):
    """Cheaper data and dearer samples please the discriminator, cheaper samples the generator."""
    costs = COSTS.make(name, {})
    assert isinstance(costs, Costs)
    data, samples = (torch.rand(6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    of_data, of_samples = torch.autograd.grad(costs.discriminator(data, samples), (data, samples))
    (of_generator,) = torch.autograd.grad(costs.generator(samples), samples)
    assert bool((of_data > 0).all())
    assert bool((of_samples < 0).all())
    assert bool((of_generator > 0).all())


def test_the_gap_and_its_margin_by_hand():
    """Data 1 and 3, samples 4 and 20: means 2 and 12; with margin 10, max(2 − 4, −10) and max(2 − 20, −10)."""
    data, samples = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 20.0])
    assert float(EnergyGap().discriminator(data, samples)) == -10
    assert float(EnergyGap(margin=10.0).discriminator(data, samples)) == (-2 - 10) / 2
    assert float(EnergyGap().generator(samples)) == 12


def test_the_original_gan_by_hand_and_at_its_optimum():
    """c = log p_gen − log p_data: D = p_data/(p_data + p_gen) is ⅔, ½, ⅓."""
    energies = [math.log(0.5), 0.0, math.log(2)]
    at_optimum(OriginalGan(), energies)
    one = torch.tensor([math.log(2)])  # D = ⅓
    assert float(OriginalGan().generator(one)) == pytest.approx(-math.log(1 / 3))
    assert float(OriginalGan(saturating=True).generator(one)) == pytest.approx(math.log(2 / 3))
    assert float(OriginalGan().discriminator(one, one)) == pytest.approx(-math.log(1 / 3) - math.log(2 / 3))


def test_ebgan_by_hand_and_only_with_energies_above_0():
    """Margin 3: samples of 1 and 5 cost 2 and nothing."""
    costs = Ebgan(margin=3.0)
    assert float(costs.discriminator(torch.tensor([2.0]), torch.tensor([1.0, 5.0]))) == 2 + 1
    assert float(costs.generator(torch.tensor([1.0, 5.0]))) == 3
    with pytest.raises(UserError, match="at least 0"):
        costs.discriminator(torch.tensor([2.0]), torch.tensor([-1.0]))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_the_best_discriminator_of_an_f_gan_is_f_prime_of_the_ratio(divergence):
    """T = f′(p_data/p_gen), and the activation of −c reaches it: the optimum in c has gradient 0."""
    chosen = DIVERGENCES[divergence]
    wanted = chosen.derivative(torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64))
    inverse = {
        "kl": lambda t: t, "pearson": lambda t: t, "reverse_kl": lambda t: -(-t).log(),
        "jensen_shannon": lambda t: t - (-t.expm1()).log(),
    }[divergence]  # fmt: skip
    raw = inverse(wanted)
    torch.testing.assert_close(chosen.activation(raw), wanted)
    at_optimum(FGan(divergence=divergence), (-raw).tolist())


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_conjugate_is_the_supremum_it_is_defined_as(divergence):
    """f*(f′(u)) = u·f′(u) − f(u), with f as Nowozin et al. 2016 list them."""
    u = torch.linspace(0.2, 3, 20, dtype=torch.float64)
    f = {"kl": u * u.log(), "reverse_kl": -u.log(), "pearson": (u - 1).square(),
         "jensen_shannon": u * u.log() - (u + 1) * (u + 1).log()}[divergence]  # fmt: skip
    chosen = DIVERGENCES[divergence]
    slope = chosen.derivative(u)
    torch.testing.assert_close(chosen.conjugate(slope), u * slope - f)
    costs = FGan(divergence=divergence)
    assert float(costs.generator(-u)) == pytest.approx(-float(chosen.conjugate(chosen.activation(u)).mean()))
