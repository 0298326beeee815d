import math
from dataclasses import dataclass
from functools import cache

import pytest
import torch

from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.log_z import log_z
from ebar.estimators.moments import moments, weighted_mean
from ebar.features.feature import Features
from ebar.samplers.metropolis import chain_groups
from ebar.types import Context, Sequences, Weighted
from tests.estimators.conftest import Small
from tests.estimators.test_log_z import in_groups, weigh


def test_weights_1_and_3_on_0_and_1_give_three_quarters():
    (found,) = weighted_mean(torch.tensor([[1.0, 3.0]]).log(), torch.tensor([[0.0, 1.0]]), low=0.0, high=1.0)
    assert found.value == pytest.approx(0.75)
    # Leave-one-out: 1 and 0, so the half-width is 12.7062·√(½·2·¼), on the logit scale divided by ¾·¼.
    slope = 12.706204736 * 0.5 / (3 / 16)
    assert found.low == pytest.approx(1 / (1 + math.exp(slope) / 3))
    assert found.high == pytest.approx(1 / (1 + math.exp(-slope) / 3))


def test_equal_weights_give_students_interval():
    (found,) = weighted_mean(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 2.0]]))
    assert found.value == pytest.approx(1.0)
    assert found.high - 1 == pytest.approx(4.302652729911275 / math.sqrt(3))
    assert 1 - found.low == pytest.approx(4.302652729911275 / math.sqrt(3))


def test_a_common_factor_of_the_weights_does_not_matter(generator):
    log_weights = torch.randn(2, 300, dtype=torch.float64, generator=generator)
    values = torch.randn(2, 300, dtype=torch.float64, generator=generator)
    for one, other in zip(weighted_mean(log_weights, values), weighted_mean(log_weights + 300, values), strict=True):
        assert one[:4] == pytest.approx(other[:4], rel=1e-9)


def test_moments_of_every_row_and_feature(system: Small, generator):
    # 99.9999 % intervals of at most 6 numbers: one false alarm in 10⁵.
    draws = weigh(system, 4000, generator)
    found = moments(draws, system.features, target=system.target, context=system.context, level=0.999999)
    truth = exact.moments(system.target, system.features, system.context).tolist()
    plain = exact.moments(system.base, system.features, system.context).tolist()
    told_apart = False
    for estimates, values, unweighted in zip(found, truth, plain, strict=True):
        for estimate, value, ignored in zip(estimates, values, unweighted, strict=True):
            assert estimate.low < value < estimate.high
            told_apart |= not estimate.low < ignored < estimate.high
            assert estimate.warning is None
    assert told_apart  # weights ignored would have been seen


def test_batches_as_units_have_the_same_value(system: Small, generator):
    parts = [weigh(system, size, generator) for size in [100, 50] * 10]
    by_batch = moments(in_groups(parts), system.features, context=system.context)
    by_draw = moments(parts, system.features, context=system.context)
    for batch, draw in zip(by_batch, by_draw, strict=True):
        for one, other in zip(batch, draw, strict=True):
            assert one.value == pytest.approx(other.value, abs=1e-12)
            assert 0.3 < (one.high - one.low) / (other.high - other.low) < 3


def test_a_binary_feature_never_drawn_has_wilsons_interval_and_a_warning():
    (found,) = weighted_mean(torch.zeros(1, 1000), torch.zeros(1, 1000), low=0.0, high=1.0, name="motif")
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(3.841459 / 1003.841459, rel=1e-6)
    assert "no draw has the feature 'motif'" in str(found.warning)
    (found,) = weighted_mean(torch.zeros(1, 1000), torch.ones(1, 1000), low=0.0, high=1.0, name="motif")
    assert found.high == 1.0 > found.low > 0.99
    assert "every draw has the feature 'motif'" in str(found.warning)


def test_a_rare_feature_stays_inside_its_range():
    values = torch.zeros(1, 1000)
    values[0, :2] = 1.0
    (found,) = weighted_mean(torch.zeros(1, 1000), values, low=0.0, high=1.0)
    assert 0 < found.low < 0.002 < found.high < 0.03
    assert found.warning is None


def test_no_weight_has_no_mean_and_the_whole_range_for_an_interval():
    (found,) = weighted_mean(torch.full((1, 100), -math.inf), torch.rand(1, 100), low=0.0, high=1.0)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)
    assert "nothing of the target" in str(found.warning)


def test_a_value_that_is_not_a_number_stays_one():
    (found,) = weighted_mean(torch.zeros(1, 3), torch.tensor([[0.0, math.nan, 1.0]]))
    assert math.isnan(found.value)


def autoregressive(chains: int, steps: int, memory: float, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(chains, steps, dtype=torch.float64, generator=generator)
    for step in range(1, steps):
        values[:, step] = memory * values[:, step - 1] + math.sqrt(1 - memory**2) * values[:, step]
    return values


@pytest.mark.parametrize(("chains", "steps"), [(1, 3000), (8, 600), (100, 60)])
def test_intervals_of_chains_widen_with_their_memory_and_cover(chains: int, steps: int, generator):
    # Memory 0.8 makes 9 draws worth one. 400 repetitions of a 95 % interval: 4.5 standard errors below 94 % are
    # 88.6 %, and above 96 % are more than 100 %; taking the draws as independent would cover under 50 %.
    everything = autoregressive(400 * chains, steps, 0.8, generator).reshape(400, chains, steps)
    found = [moments(drawn_in(*values.shape), Features([Looked(values)]))[0][0] for values in everything]
    covered = sum(estimate.low < 0 < estimate.high for estimate in found) / 400
    assert covered > 0.886
    sizes = torch.tensor([estimate.effective_sample_size for estimate in found])
    assert float(sizes.median()) == pytest.approx(chains * steps / 9, rel=0.35)


def test_chains_that_never_leave_a_side_warn():
    values = torch.ones(4, 100)
    (found,) = moments(drawn_in(*values.shape), Features([Looked(values, name="motif", low=0.0, high=1.0)]))[0]
    assert "every draw has the feature 'motif'" in str(found.warning)
    assert found.low < 1.0


def test_draws_of_chains_say_nothing_of_z():
    with pytest.raises(UserError, match="say nothing of Z"):
        log_z(drawn_in(4, 100))


@dataclass(frozen=True)
class Looked:
    """A feature whose value at every draw is known: draw t of chain c is the sequence (c, t)."""

    values: torch.Tensor
    name: str = "value"
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, x: Sequences, context: Context | None = None) -> torch.Tensor:
        return self.values[x.tokens[:, 0], x.tokens[:, 1]]


@cache
def drawn_in(chains: int, steps: int) -> Weighted:
    """As `Metropolis` streams so many draws of so many chains."""
    tokens = torch.cartesian_prod(torch.arange(steps), torch.arange(chains)).flip(1)
    groups = torch.cat([chain_groups(chains, steps, step) for step in range(steps)])
    return Weighted(
        Sequences(tokens, torch.full((len(tokens),), 2)), torch.zeros(1, len(tokens)), groups, estimates_z=False
    )
