"""Whether certified intervals cover where the sample's own variance misleads, for prefixes without a common mean."""

import math

import pytest
import torch

from ebar.estimators.log_z import certified_perplexity
from ebar.maths.certified import certified_log_means

RUNS, LEAST = 150, 0.86  # at a coverage of 0.95 one false alarm in 100,000 runs (binomial)


def saturated(uniform: torch.Tensor) -> torch.Tensor:
    """−E of a network that says little but ±3: 3·tanh of a wide normal whose mean differs from prefix to prefix."""
    centres = torch.linspace(-5, 1, uniform.shape[-2], dtype=torch.float64)[:, None]
    normal = math.sqrt(2) * torch.erfinv((2 * uniform - 1).clamp(-1 + 1e-15, 1 - 1e-15))
    return 3 * torch.tanh((centres + 4 * normal) / 3)


def log_z(prefixes: int) -> torch.Tensor:
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    return torch.logsumexp(saturated(grid.expand(prefixes, -1)), 1) - math.log(20_000)


@pytest.mark.parametrize(("prefixes", "draws"), [(1, 32), (1, 200), (6, 40), (40, 16)])
def test_limits_of_the_mean_log_z_cover_for_saturated_networks(prefixes, draws, generator):
    uniform = torch.rand(RUNS, prefixes, draws, dtype=torch.float64, generator=generator)
    limits = certified_log_means(saturated(uniform), highest=3.0, lowest=-3.0)
    truth = float(log_z(prefixes).sum())
    covered = (limits.low <= truth) & (truth <= limits.high)
    assert float(covered.double().mean()) >= LEAST
    assert bool((limits.high - limits.low < 6 * prefixes).any())  # less than all that the bound alone says


def test_the_difference_is_certified_for_other_prefixes_too(generator):
    """Prefixes of one kind, energies of data that vary: 30 at a time, 64 draws each; the mean of E is −0.5 exactly."""
    runs, prefixes = 30, 30  # 22 of 30 or fewer come once in 12,000 runs at 0.95
    uniform = torch.rand(runs, 1, prefixes * 64, dtype=torch.float64, generator=generator)
    draws = saturated(uniform).view(runs, prefixes, 64)
    truth = (-0.5 + float(log_z(1)[0])) / 10
    own = torch.rand(runs, prefixes, dtype=torch.float64, generator=generator) * 3 - 2
    tokens = torch.full((prefixes,), 10.0, dtype=torch.float64)
    covered = 0
    for run in range(runs):
        found = certified_perplexity(-tokens, own[run], draws[run], tokens, 3.0)
        assert found.elsewhere is not None
        covered += found.elsewhere[0] <= truth <= found.elsewhere[1]
        assert found.elsewhere[0] < found.difference[1]
    assert covered > 22
