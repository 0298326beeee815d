"""The integrated autocorrelation time against its definition, sum by sum."""

import pytest
import torch
from torch import Generator, Tensor

from ebar.samplers.metropolis import integrated_autocorrelation_time


def by_definition(values: Tensor, window: float) -> float:
    """τ(t) = 1 + 2·Σ ρ up to t, at the first t ≥ window·τ(t)."""
    centred = (values - values.mean()).tolist()
    steps = len(centred[0])
    covariance = [sum(x[i] * x[i + lag] for x in centred for i in range(steps - lag)) for lag in range(steps)]
    time = -1.0
    for lag in range(steps):
        time += 2 * covariance[lag] / covariance[0]
        if lag >= window * time:
            break
    return max(1.0, time)


@pytest.mark.parametrize("window", [1.0, 3.0, 5.0])
def test_the_sum_is_cut_where_the_definition_says(window: float):
    noise = torch.randn(3, 120, dtype=torch.float64, generator=Generator().manual_seed(1))
    values = noise.clone()
    for place in range(1, 120):
        values[:, place] = 0.8 * values[:, place - 1] + noise[:, place]
    wanted = by_definition(values, window)
    assert wanted > 1.5
    assert integrated_autocorrelation_time(values, window) == pytest.approx(wanted, rel=1e-9)
    assert integrated_autocorrelation_time(values) == pytest.approx(by_definition(values, 5.0), rel=1e-9)
