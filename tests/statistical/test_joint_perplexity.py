"""Whether the perplexity interval covers the exact perplexity, and the difference's that of all prefixes."""

import pytest
import torch

from ebar.estimators.joint_perplexity import cost_difference, interval, joint_perplexity
from tests.estimators.residual import residual

RUNS = 2000


def energies_of(log_q: torch.Tensor, energies: torch.Tensor, shape: tuple[int, int], generator) -> torch.Tensor:
    """Energies of draws from q, [runs, prefixes, draws]."""
    runs, n = shape
    drawn = torch.multinomial(log_q.exp(), runs * n, replacement=True, generator=generator)
    return energies.gather(1, drawn).view(len(log_q), runs, n).transpose(0, 1)


CASES = [(1, 200, 1.0), (1, 1000, 1.5), (5, 100, 1.0), (20, 50, 0.5), (20, 50, 1.5)]


@pytest.mark.parametrize(("prefixes", "n", "scale"), CASES)
def test_the_perplexity_interval_covers_the_exact_value(prefixes: int, n: int, scale: float, generator):
    # Measured over 4,000 runs: 0.944 to 0.984 for these, so that 0.925 is 3.7 standard errors or more below.
    small = residual(rows=prefixes, scale=scale)
    log_q, energies = small.log_q(), small.energies()
    x = torch.multinomial(log_q.exp(), 1, generator=generator)
    scores = (log_q - energies).gather(1, x).sum()
    truth = (small.log_z().sum() - scores) / (4 * prefixes)
    draws = energies_of(log_q, energies, (RUNS, n), generator)
    low, value, high = interval(scores.expand(RUNS), -draws, 4.0 * prefixes)
    covered = (low <= truth) & (truth <= high)
    assert float(covered.double().mean()) >= 0.925
    assert ((low <= value) & (value <= high)).all()
    assert float((high - low).mean()) < 8 * float(value.std())  # an interval that says something
    one = joint_perplexity(
        log_q.gather(1, x)[:, 0], energies.gather(1, x)[:, 0], draws[0].contiguous(), torch.full((prefixes,), 4)
    )
    ends = torch.stack([low[0], value[0], high[0]]).exp().tolist()
    assert [one.low, one.value, one.high] == pytest.approx(ends, rel=1e-12)


def test_the_interval_of_the_difference_covers_that_of_all_prefixes(generator):
    # 40 prefixes at a time out of endlessly many of 30 kinds, 50 draws each. Measured over 4,000 runs: 0.961.
    small, prefixes, n = residual(rows=30), 40, 50
    log_q, energies = small.log_q(), small.energies()
    truth = float(((log_q.exp() * energies).sum(1) + small.log_z()).mean()) / 4
    kinds = torch.randint(30, (RUNS, prefixes), generator=generator)
    own = torch.multinomial(log_q.exp(), RUNS * prefixes, replacement=True, generator=generator)
    drawn = torch.multinomial(log_q.exp(), 200_000, replacement=True, generator=generator)
    data = energies.gather(1, own).view(30, RUNS, prefixes).gather(0, kinds[None])[0]
    chosen = torch.randint(200_000, (RUNS, prefixes, n), generator=generator)
    draws = energies.gather(1, drawn)[kinds[:, :, None], chosen]
    low, _, high = cost_difference(data, -draws, torch.full((prefixes,), 4.0, dtype=torch.float64))
    covered = float(((low <= truth) & (truth <= high)).double().mean())
    assert 0.925 <= covered <= 0.98
