import math

import torch

from ebar.maths.jackknife import log_mean_bounds, log_rest
from ebar.maths.log_space import log_mean_exp


def test_leaving_one_out_at_once_equals_leaving_each_out_in_turn(generator):
    log_weights = 5 * torch.randn(3, 40, dtype=torch.float64, generator=generator)
    log_weights[1, 7] = 60.0
    log_weights[2, 3] = -math.inf
    n = log_weights.shape[1]
    total = torch.logsumexp(log_weights, 1)
    each = torch.stack(
        [torch.logsumexp(torch.cat([log_weights[:, :i], log_weights[:, i + 1 :]], 1), 1) for i in range(n)], 1
    )
    torch.testing.assert_close(log_rest(log_weights), each - total[:, None], atol=1e-12, rtol=1e-12)
    lower = log_mean_exp(log_weights)
    corrected = n * lower - (n - 1) * (each - math.log(n - 1)).mean(1)
    bounds = log_mean_bounds(log_weights)
    torch.testing.assert_close(bounds.corrected, corrected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(bounds.upper, 2 * corrected - lower, atol=1e-9, rtol=1e-9)


def test_biases_of_the_three_estimates_are_minus_c_over_n_none_and_plus_c_over_n(generator):
    # FACTS §3: log-normal weights of σ = 1, n = 100: c/n = (e − 1)/200 = 0.00859; seen there −.0082, −.0001, +.0081.
    # 40,000 repetitions: the mean of T has a standard error of 0.131/200 = 0.00066; 4.5 of them are 0.003,
    # and the next order, (c/n)² and the skewness term, is another 0.0005: one false alarm in 10⁵.
    log_weights = torch.randn(40_000, 100, dtype=torch.float64, generator=generator)
    bounds = log_mean_bounds(log_weights)
    expected = (math.e - 1) / 200
    for estimate, bias in zip(bounds, (-expected, 0.0, expected), strict=True):
        assert abs(float(estimate.mean()) - 0.5 - bias) < 0.0035
    # The gaps between them are nearly free of noise.
    assert abs(float((bounds.upper - bounds.lower).mean()) - 2 * expected) < 0.0015
