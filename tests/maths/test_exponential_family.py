"""λ by Newton's method: by hand, as identities, and where no λ exists."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from ebar.maths.exponential_family import inverse, match, tilt


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logit(share: float) -> float:
    return math.log(share) - math.log1p(-share)


@pytest.mark.parametrize(("base", "goal"), [(0.5, 0.9), (0.002, 0.998), (0.002, 0.5), (0.3, 1e-5), (0.999, 0.01)])
def test_of_one_binary_feature_lambda_is_a_difference_of_logits(base: float, goal: float):
    found = match(tensor(1, 0)[:, None], tensor(base, 1 - base).log(), tensor(goal))
    assert float(found.coefficients) == pytest.approx(logit(goal) - logit(base), abs=1e-4)
    assert float(found.moments) == pytest.approx(goal, abs=1e-8)
    assert float(found.covariance) == pytest.approx(goal * (1 - goal), abs=1e-8)
    assert found.converged
    assert found.iterations <= 20
    assert len(found.trace) == found.iterations + 1


def test_the_ridge_takes_its_share_of_the_moment():
    # m = σ(λ) + ρλ at λ = 1, ρ = 0.1.
    found = match(tensor(1, 0)[:, None], tensor(0.5, 0.5).log(), tensor(1 / (1 + math.exp(-1)) + 0.1), ridge=0.1)
    assert float(found.coefficients) == pytest.approx(1, abs=1e-6)


def problem(seed: int, features: int, points: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = Generator().manual_seed(seed)
    values = torch.randn(points, features, dtype=torch.float64, generator=generator)
    if seed % 2:
        values = (values > 0.5).double()
    if seed % 3 == 0:
        values[:, 0] *= 100
    scale = values.std(0).clamp(min=1e-3)
    coefficients = 2 * torch.randn(features, dtype=torch.float64, generator=generator) / scale
    log_weights = torch.randn(points, dtype=torch.float64, generator=generator).log_softmax(0)
    return values, log_weights, coefficients


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 12))
def test_moments_of_a_known_lambda_are_reached_within_20_iterations(seed: int, features: int, bits: int):
    values, log_weights, coefficients = problem(seed, features, 2**bits)
    wanted = tilt(values, log_weights, coefficients).moments
    found = match(values, log_weights, wanted)
    assert found.iterations <= 20
    width = (values.amax(0) - values.amin(0)).clamp(min=1)
    assert float(((found.moments - wanted) / width).abs().max()) < 1e-6


def test_the_gradient_of_log_z_is_the_moment_and_its_hessian_the_covariance():
    values, log_weights, coefficients = problem(1, 3, 50)

    def log_total(where: Tensor) -> Tensor:
        return torch.logsumexp(log_weights + values @ where, 0)

    state = tilt(values, log_weights, coefficients)
    of: Any = torch.autograd.functional
    torch.testing.assert_close(of.jacobian(log_total, coefficients), state.moments)
    torch.testing.assert_close(of.hessian(log_total, coefficients), state.covariance)
    assert float(state.log_total) == pytest.approx(float(log_total(coefficients)))


@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_collinear_and_constant_features_do_not_run_away(ridge: float):
    values, log_weights, _ = problem(2, 2, 200)
    values = torch.cat([values, 2 * values[:, :1] + values[:, 1:], torch.ones(200, 1, dtype=torch.float64)], 1)
    wanted = tilt(values, log_weights, tensor(0.5, -0.3, 0.2, 0)).moments
    found = match(values, log_weights, wanted, ridge=ridge)
    assert found.converged
    assert float((found.moments - wanted).abs().max()) < 1e-4
    assert float(found.coefficients.abs().max()) < 5
    assert float(found.coefficients[3]) == 0
    # Contradictory moments move λ no farther, though nothing can match them.
    contradictory = wanted + tensor(0, 0, 0.1, 0.5)
    assert float(match(values, log_weights, contradictory, ridge=ridge).coefficients.abs().max()) < 5


def test_beyond_the_range_lambda_runs_far_and_stays_finite():
    values, log_weights = tensor(1, 0)[:, None], tensor(0.3, 0.7).log()
    outside = match(values, log_weights, tensor(1.5))
    assert not outside.converged
    assert math.isfinite(float(outside.coefficients))
    assert float(outside.coefficients) > 100
    prior = match(values, log_weights, tensor(1.0), ridge=1e-4)
    assert prior.converged
    # At the end of the range the prior balances what is left: 1 − E = ρλ.
    assert 1 - float(prior.moments) == pytest.approx(1e-4 * float(prior.coefficients), rel=1e-4)


def test_points_without_weight_are_as_if_they_were_not():
    values, log_weights, coefficients = problem(4, 2, 64)
    wanted = tilt(values, log_weights, coefficients).moments
    more = torch.cat([values, tensor(1e6, -1e6)[None]]), torch.cat([log_weights, tensor(-math.inf)])
    torch.testing.assert_close(match(*more, wanted).coefficients, match(values, log_weights, wanted).coefficients)
    with pytest.raises(ValueError, match="positive weight"):
        match(values, torch.full_like(log_weights, -math.inf), wanted)


def test_huge_exponents_lose_nothing():
    state = tilt(tensor(0, 1)[:, None], tensor(0, -5000), tensor(5000))
    assert float(state.moments) == pytest.approx(0.5)


def test_the_inverse_leaves_flat_directions_alone():
    matrix = torch.tensor([[1e6, 0, 0], [0, 1e-6, 0], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(inverse(matrix).diagonal(), tensor(1e-6, 1e6, 0))
