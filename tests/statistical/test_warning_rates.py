"""Silence where intervals cover, warnings where they do not. `benchmarks/warning_rates.py` measures all of it."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.maths.importance import diagnose

RUNS = 400


def uniform(draws: int, generator: Generator) -> Tensor:
    return torch.rand(RUNS, draws, dtype=torch.float64, generator=generator).clamp(min=1e-17)


def normal(draws: int, generator: Generator) -> Tensor:
    return torch.randn(RUNS, draws, dtype=torch.float64, generator=generator)


VALUES: dict[str, Callable[[int, Generator], Tensor]] = {
    "normal": normal,
    "exponential": lambda *size: -uniform(*size).log(),
    "log-normal": lambda *size: (normal(*size) / 2).exp(),
}


def share(warnings: list[str | None]) -> float:
    return sum(warning is not None for warning in warnings) / len(warnings)


@pytest.mark.parametrize("draws", [100, 300, 1000])
@pytest.mark.parametrize("name", VALUES)
def test_plain_means_whose_intervals_cover_seldom_warn(name: str, draws: int, generator):
    # Measured over 2,000 runs: 1.1 % at most. At 1.5 %, more than 20 of 400 happen once in 3·10⁵ runs.
    values = VALUES[name](draws, generator)
    assert share([one.warning for one in weighted_mean(torch.zeros_like(values), values)]) <= 0.05


@pytest.mark.parametrize("draws", [100, 300, 1000])
def test_log_z_of_light_tailed_weights_seldom_warns(draws: int, generator):
    for name in ("exponential", "log-normal"):
        found = log_mean(VALUES[name](draws, generator).log())
        assert share([one.estimate.warning for one in found]) <= 0.05


@pytest.mark.parametrize("draws", [100, 300, 1000])
def test_nearly_equal_weights_never_warn(draws: int, generator):
    """Within [0.78, 1.31], so that the effective size is at least 0.93·n: the second kind has two rare lumps."""
    rare = uniform(draws, generator)
    lumps = (0.02 * normal(draws, generator)).clamp(-0.2, 0.2)
    lumps = lumps.where(rare > 0.02, math.log(0.78)).where(rare > 0.01, math.log(1.31))
    for log_weights in (torch.log(0.78 + 0.53 * uniform(draws, generator)), lumps):
        assert set(diagnose(log_weights)) == {None}


@pytest.mark.parametrize(("kind", "draws"), [("generalised", 100), ("generalised", 300), ("pure", 300), ("pure", 1000)])
def test_weights_of_index_0_9_warn(kind: str, draws: int, generator):
    # Measured over 2,000 runs: 97.2 % at least. At 97 %, fewer than 372 of 400 happen once in 2·10⁴ runs.
    log_weights = -0.9 * uniform(draws, generator).log()
    if kind == "generalised":
        log_weights = torch.log(torch.expm1(log_weights) / 0.9)
    assert share([one.estimate.warning for one in log_mean(log_weights)]) >= 0.93


def test_a_bounded_lump_of_large_weights_is_no_tail(generator):
    """One draw in thirty weighs 40 times the others: 33 of 1,000 share what an index takes for a tail."""
    heavy = uniform(1000, generator) < 1 / 30
    noise = 0.05 * normal(1000, generator)
    found = diagnose(torch.where(heavy, math.log(40.0), 0.0) + noise)
    # Silent where the lump has 20 draws or more: of 33.3 expected, fewer happen in 0.6 % of runs, more than 20 of 400
    # such runs once in 10¹⁰.
    assert share(found) <= 0.05
