"""The slopes of `DIVERGENCES` are what policy gradient moves by: (π/q)·f'(π/p), with f' as f-DPG has it."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from ebar.maths.divergences import DIVERGENCES

LOG_T = torch.linspace(-6, 6, 25, dtype=torch.float64)  # log π − log p; 0 is in it
LOG_RATIO = torch.linspace(-2, 3, 25, dtype=torch.float64)  # log π − log q

DERIVATIVES: dict[str, Callable[[Tensor], Tensor]] = {  # f'(t) by log t; Go et al. 2023, table 1
    "kl": lambda log_t: -torch.exp(-log_t),
    "reverse_kl": lambda log_t: log_t + 1,
    "total_variation": lambda log_t: torch.sign(log_t) / 2,
    "jensen_shannon": lambda log_t: (math.log(2) - softplus(-log_t)) / 2,  # f-DPG's own is that of 2·JS
}


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_the_slope_in_the_policy_is_the_ratio_times_the_derivative_of_f(kind: str) -> None:
    expected: Tensor = LOG_RATIO.exp() * DERIVATIVES[kind](LOG_T)
    # log a = log p − log q = log π/q − log t
    torch.testing.assert_close(DIVERGENCES[kind](LOG_RATIO - LOG_T, LOG_RATIO).slope_b, expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("kl", -2.0), ("reverse_kl", 1 - math.log(2)), ("total_variation", -0.5), ("jensen_shannon", math.log(2 / 3) / 2)],
)
def test_a_policy_with_half_the_targets_chance_by_hand(kind: str, expected: float) -> None:
    """t = ½: −1/t, log t + 1, sign(log t)/2, ½·log(2t/(1 + t))."""
    log_p, log_pi = torch.tensor([math.log(0.8), math.log(0.4)], dtype=torch.float64)
    assert float(DIVERGENCES[kind](log_p - log_pi, torch.zeros_like(log_pi)).slope_b) == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "expected"), [("kl", 0.0), ("total_variation", 1.0), ("jensen_shannon", math.log(2))])
def test_where_the_target_is_zero_the_policy_is_pushed_away_by_a_finite_force(kind: str, expected: float) -> None:
    log_b = torch.tensor(math.log(2), dtype=torch.float64)
    assert float(DIVERGENCES[kind](torch.tensor(-math.inf).double(), log_b).slope_b) == pytest.approx(expected)
