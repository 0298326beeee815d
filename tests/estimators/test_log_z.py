import math

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.log_z import from_batches, log_mean, log_z
from ebar.features.feature import Features
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Sequences, Space, Weighted, context_rows
from tests.estimators.conftest import Small, Starts


def weigh(system: Small, n: int, generator: torch.Generator) -> Weighted:
    x = system.base.sample(n, system.context, generator=generator)
    return Weighted(x, -system.target.energy(x, system.context).detach().reshape(context_rows(system.context), n))


def test_weights_1_and_3_give_log_2_and_the_jackknifes_bounds():
    (found,) = log_mean(torch.tensor([[1.0, 3.0]]).log())
    assert found.estimate.value == pytest.approx(math.log(2))
    assert (found.lower, found.upper) == pytest.approx((math.log(2), math.log(8 / 3)))
    assert found.estimate.effective_sample_size == pytest.approx(1.6)
    # Leave-one-out logs log 3 and log 1: half-width 12.7062·√(½·2·(½ log 3)²), Student's with one degree of freedom.
    assert found.estimate.high - found.estimate.value == pytest.approx(12.706204736 * math.log(3) / 2)
    assert "size of only 1.6" in str(found.estimate.warning)


def in_groups(parts: list[Weighted]) -> list[Weighted]:
    """The draws of each part depend on one another."""
    return [part._replace(groups=torch.full((part.log_weights.shape[1],), n)) for n, part in enumerate(parts)]


def test_every_row_of_a_context_has_its_own_z(system: Small, generator):
    # 99.9999 % intervals of 3 rows: one false alarm in 3·10⁵ (fewer, as coverage is conservative here).
    found = log_z(weigh(system, 4000, generator), target=system.target, context=system.context, level=0.999999)
    truth = exact.log_z(system.target, system.context)
    assert len(found) == len(truth)
    for row, value in zip(found, truth.tolist(), strict=True):
        assert row.estimate.low < value < row.estimate.high
        assert row.estimate.warning is None
        assert row.estimate.high - row.estimate.low < 0.4


def test_a_stream_read_in_batches_equals_the_draws_in_one(system: Small, generator):
    parts = [weigh(system, size, generator) for size in (300, 200, 500)]
    rows = context_rows(system.context)
    together = torch.cat([part.log_weights for part in parts], 1)
    xs = [part.x.tokens.reshape(rows, part.log_weights.shape[1], -1) for part in parts]
    width = max(x.shape[2] for x in xs)
    tokens = torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[2])) for x in xs], 1).flatten(0, 1)
    lengths = torch.cat([part.x.lengths.reshape(rows, -1) for part in parts], 1).flatten()
    assert log_z(iter(parts)) == log_z(Weighted(Sequences(tokens, lengths), together))


def test_batches_as_units_have_the_same_value_and_an_interval_of_their_own(system: Small, generator):
    parts = [weigh(system, size, generator) for size in [100, 50] * 10]
    by_batch = log_z(in_groups(parts), context=system.context)
    by_draw = log_z(parts, context=system.context)
    for batch, draw in zip(by_batch, by_draw, strict=True):
        assert batch.estimate.value == pytest.approx(draw.estimate.value, abs=1e-12)
        assert 0.3 < (batch.estimate.high - batch.estimate.low) / (draw.estimate.high - draw.estimate.low) < 3
        assert batch.estimate.warning is None


def test_equal_weights_inside_batches_do_not_make_the_interval_a_point():
    # A resampled system: each batch's weights are all its Ẑ. Taken as independent draws they look ten times surer.
    parts = [
        Weighted(Sequences(torch.zeros(100, 1, dtype=torch.long), torch.ones(100, dtype=torch.long)),
                 torch.full((1, 100), math.log(z)))
        for z in (0.8, 1.2) * 6
    ]  # fmt: skip
    honest, fooled = (log_z(drawn)[0].estimate for drawn in (in_groups(parts), parts))
    assert honest.value == pytest.approx(0.0, abs=1e-6)
    assert (honest.high - honest.low) / (fooled.high - fooled.low) > 9
    # Over twelve values of 1 ± 0.2 the variance of the mean is 0.04/11; 1,200 draws worth m have 1/m − 1/1,200.
    assert honest.effective_sample_size == pytest.approx(1 / (0.04 / 11 + 1 / 1200), rel=0.05)


def test_too_few_batches_and_batches_that_disagree_warn():
    assert "only 4 independent groups" in str(from_batches(torch.zeros(1, 4))[0].estimate.warning)
    lonely = torch.zeros(1, 20)
    lonely[0, 0] = 8.0
    assert "disagree" in str(from_batches(lonely)[0].estimate.warning)
    assert from_batches(torch.linspace(-0.1, 0.1, 20)[None])[0].estimate.warning is None


def rare(probability: float, coefficient: float) -> Tilted:
    base = Tabular(Space(2, 1), torch.tensor([[[1 - probability, probability]]], dtype=torch.float64).log())
    return Tilted(base, Linear(Features([Starts(1)]), torch.tensor([coefficient], dtype=torch.float64)))


@pytest.mark.parametrize("coefficient", [5.0, -5.0])
def test_a_binary_feature_whose_rare_side_was_not_drawn_warns(coefficient: float, generator):
    # Z is (1 − 10⁻⁶) + 10⁻⁶·e^±5: every weight is 1, ESS is perfect, and only the support check can speak.
    # One false alarm in 1,000 runs: the rare side may come up in 1,000 draws.
    target = rare(1e-6, coefficient)
    x = target.base.sample(1000, generator=generator)
    draws = Weighted(x, -target.energy(x).detach()[None])
    (found,) = log_z(draws, target=target)
    assert "no draw has the feature 'starts with 1'" in str(found.estimate.warning)
    assert log_z(draws)[0].estimate.warning is None  # without the target it cannot be known


def test_a_side_that_the_target_forbids_is_not_missed():
    target = rare(0.5, -math.inf)
    zeros = Sequences(torch.zeros(500, 1, dtype=torch.long), torch.ones(500, dtype=torch.long))
    (found,) = log_z(Weighted(zeros, torch.full((1, 500), math.log(0.5))), target=target)
    assert found.estimate.warning is None
    ones = Sequences(torch.ones(500, 1, dtype=torch.long), torch.ones(500, dtype=torch.long))
    (found,) = log_z(Weighted(ones, torch.full((1, 500), -math.inf)), target=target)
    assert "every draw has" in str(found.estimate.warning)


def test_no_weight_at_all_is_no_estimate_and_says_so():
    (found,) = log_mean(torch.full((1, 200), -math.inf))
    assert (found.estimate.value, found.estimate.low, found.estimate.high) == (-math.inf, -math.inf, math.inf)
    assert "nothing of the target was drawn" in str(found.estimate.warning)


def test_a_weight_that_is_not_a_number_is_refused():
    with pytest.raises(UserError, match="check the energy there"):
        log_mean(torch.tensor([[0.0, math.nan]]))


def test_no_draws_are_refused():
    with pytest.raises(ValueError, match="no draws"):
        log_z([])
