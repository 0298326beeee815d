"""Propositions 2 and 3 of Dai et al. 2017a on finite spaces, and why an f-GAN with an entropy fails: all exact."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.objectives.finite_games import (
    ebgan_energy,
    ebgan_value,
    entropy_bound,
    kkt_residual,
    optimal_energy,
    solve_ebgan,
    solve_f_gan,
    solve_finite_game,
)

FULL = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05], dtype=torch.float64)
HOLES = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0], dtype=torch.float64)


def centred(energy: Tensor, data: Tensor) -> Tensor:
    return energy - (data * energy).sum()


def test_the_optimal_energies_by_hand():
    """p = (½, ½): no energy tells them apart. p = (¾, ¼): −log p differs by log 3, −p by ½."""
    data = torch.tensor([0.75, 0.25], dtype=torch.float64)
    entropy, squares, flat = (optimal_energy(data, term, weight=2.0) for term in ("entropy", "l2", "constant"))
    assert float(entropy[1] - entropy[0]) == pytest.approx(2 * math.log(3))
    assert float(squares[1] - squares[0]) == pytest.approx(2 * 0.5)
    assert flat.tolist() == [0.0, 0.0]
    assert optimal_energy(HOLES, "l2").isnan().tolist() == (HOLES == 0).tolist()


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_with_an_entropy_the_energy_is_minus_log_p_to_a_ten_thousandth(weight):
    found = solve_finite_game(FULL, "entropy", weight=weight)
    assert found.residual < 1e-5
    torch.testing.assert_close(found.generator, FULL, rtol=0, atol=1e-5)
    expected = centred(-weight * FULL.log(), FULL)
    torch.testing.assert_close(centred(found.energy, FULL), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(expected, optimal_energy(FULL, "entropy", weight=weight))


@pytest.mark.parametrize("data", [FULL, HOLES], ids=["full", "holes"])
def test_with_squares_the_energy_is_minus_p_to_a_ten_thousandth_and_not_below_it_off_the_support(data):
    found = solve_finite_game(data, "l2")
    assert found.residual < 1e-5
    torch.testing.assert_close(found.generator, data, rtol=0, atol=1e-5)
    support = data > 0
    energy = centred(found.energy, data)
    expected = centred(-data, data)
    torch.testing.assert_close(energy[support], expected[support], rtol=0, atol=1e-4)
    assert bool((energy[~support] >= expected[~support] - 1e-4).all())  # −0, and what is free above it


def test_with_a_constant_the_energy_is_flat_on_the_support_and_free_off_it():
    support = HOLES > 0
    ends = [solve_finite_game(HOLES, "constant", start=torch.tensor(start)) for start in ([0.0] * 5, [0.0, 3, 0, 0, 1])]
    for found in ends:
        assert found.residual < 1e-5
        assert float(found.energy[support].var(correction=0)) < 1e-4
        assert bool((found.energy[~support] > found.energy[support].max()).all())
        torch.testing.assert_close(found.generator, HOLES, rtol=0, atol=1e-5)
    free = [centred(found.energy, HOLES)[~support] for found in ends]
    assert float((free[0] - free[1]).abs().max()) > 0.5


def test_the_conditions_tell_an_optimum_from_what_is_none():
    energy = -FULL.log()
    assert kkt_residual(FULL, FULL, energy + 7, "entropy") < 1e-12
    assert kkt_residual(FULL, FULL, -energy, "entropy") > 0.1
    assert kkt_residual(FULL, FULL.flip(0), energy, "entropy") > 0.1
    off = torch.tensor([0.0, -1, 0, 0, 0], dtype=torch.float64)  # cheap where no data are: the generator would go there
    assert kkt_residual(HOLES, HOLES, off, "constant") == pytest.approx(1)


def test_probabilities_and_a_support_are_asked_for():
    with pytest.raises(UserError, match="add up to 1"):
        solve_finite_game(2 * FULL, "l2")
    with pytest.raises(UserError, match="every x must have some probability"):
        solve_finite_game(HOLES, "entropy")
    with pytest.raises(UserError, match="no term called 'l3'"):
        solve_finite_game(FULL, "l3")


def test_ebgan_s_best_energy_is_best_and_at_p_data_any_other_is_as_good():
    """B.20 by search over a grid of energies; at p = p_data the value is −m for every table in [0, m]."""
    p, margin = torch.tensor([0.2, 0.25, 0.3, 0.2, 0.05], dtype=torch.float64), 2.0
    best = ebgan_energy(FULL, p, margin=margin, where_equal=torch.full_like(p, 0.7))
    assert best.tolist() == [0.0, 0.7, 2.0, 2.0, 0.7]
    value = ebgan_value(FULL, p, best, margin=margin)
    for other in torch.cartesian_prod(*[torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)] * 5):
        assert ebgan_value(FULL, p, other, margin=margin) <= value + 1e-12
    for energy in torch.rand(20, 5, generator=Generator().manual_seed(0), dtype=torch.float64) * margin:
        assert ebgan_value(FULL, FULL, energy, margin=margin) == pytest.approx(-margin)


def test_two_runs_of_ebgan_reach_p_data_with_different_energies():
    """Seeds are fixed; two uniform tables of five agree to a tenth everywhere with a chance below 0.2⁵ = 0.0003."""
    first, second = (solve_ebgan(FULL, generator=Generator().manual_seed(seed)) for seed in (0, 1))
    for found in (first, second):
        assert found.residual < 1e-9
        torch.testing.assert_close(found.generator, FULL, rtol=0, atol=1e-9)
        assert float(found.energy.min()) >= 0
        assert float(found.energy.max()) <= 1
    assert float((centred(first.energy, FULL) - centred(second.energy, FULL)).abs().max()) > 0.1


@pytest.mark.parametrize("divergence", ["kl", "reverse_kl", "pearson", "jensen_shannon"])
def test_an_f_gan_with_an_entropy_misses_p_data_or_keeps_nothing(divergence):
    """Its optimum beats both p_data and its neighbours; its energy is −f′(p_data/p), flat as soon as p is p_data."""
    spreads, misses = [], []
    for weight in (1e-4, 0.3, 3.0):
        found = solve_f_gan(FULL, divergence, "entropy", weight=weight)
        assert float(found.generator.sum()) == pytest.approx(1, abs=1e-9)
        value = attempt(found.generator, divergence, weight)
        for step in torch.eye(5, dtype=torch.float64) * 1e-3:
            near = (found.generator + step) / (1 + 1e-3)
            assert attempt(near, divergence, weight) > value
        assert attempt(FULL, divergence, weight) > value
        misses.append(float((found.generator - FULL).abs().max()))
        spreads.append(float(found.energy.std()))
    assert misses[0] < 1e-3
    assert spreads[0] < 1e-2
    assert misses == sorted(misses)
    assert spreads == sorted(spreads)
    assert misses[2] > 0.1


def attempt(p: Tensor, divergence: str, weight: float) -> float:
    """E_p[f(p_data/p)] + α·Σ p·log p, with f as Nowozin et al. 2016 list them."""
    u = FULL / p
    f = {
        "kl": u * u.log(),
        "reverse_kl": -u.log(),
        "pearson": (u - 1).square(),
        "jensen_shannon": u * u.log() - (u + 1) * (u + 1).log(),
    }[divergence]
    return float((p * f).sum() + weight * (p * p.log()).sum())


def test_as_its_entropy_grows_an_f_gan_learns_the_energy_and_loses_the_generator():
    """For the Kullback-Leibler divergence: p tends to 1/5, and −T = log(p/p_data) − 1 to −log p_data + constant."""
    found = solve_f_gan(FULL, "kl", "entropy", weight=1e4)
    torch.testing.assert_close(found.generator, torch.full_like(FULL, 0.2), rtol=0, atol=1e-3)
    torch.testing.assert_close(centred(found.energy, FULL), centred(-FULL.log(), FULL), rtol=0, atol=1e-2)


def test_the_variational_bound_is_at_most_the_entropy_and_tight_for_the_posterior():
    generator = Generator().manual_seed(3)
    prior, likelihood = (
        torch.rand(*shape, generator=generator, dtype=torch.float64).softmax(-1) for shape in ((4,), (4, 3))
    )
    joint = prior[:, None] * likelihood
    marginal = joint.sum(0)
    entropy = float(-(marginal * marginal.log()).sum())
    posterior = (joint / marginal).T
    assert float(entropy_bound(prior, likelihood, posterior)) == pytest.approx(entropy, abs=1e-12)
    for _ in range(20):
        guess = torch.randn(3, 4, generator=generator, dtype=torch.float64).softmax(-1)
        gap = (marginal[:, None] * posterior * (posterior / guess).log()).sum()  # E[KL(posterior ‖ guess)]
        assert float(entropy_bound(prior, likelihood, guess)) == pytest.approx(entropy - float(gap), abs=1e-12)
        assert float(gap) > 0
