"""Monte Carlo against enumeration, for every line of the table of samplers.

Every comparison that can fail by chance says how often. Repetitions are rows of the context: all run at once.
"""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.rejection import QuasiRejection
from ebar.samplers.trade_off import trade_off
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Weighted, context_rows
from tests.samplers.worlds import SPACES, World, linear_world

# Six standard errors, each estimated from 75 repetitions or more of dozens of draws: one false alarm in 10⁷.
SIGMAS = 6.0
CERTAINTY = 1e-8  # false alarms per comparison where a bound of Hoeffding or McDiarmid is used

WEIGHTED = [name for name, sampler in SAMPLERS.items() if sampler.weighted]
DRAWS_ONLY = [name for name, sampler in SAMPLERS.items() if not sampler.weighted]
SETTINGS: dict[str, dict[str, Any]] = {
    "quasi_rejection": {"log_beta": 2.0},  # the largest weight is e²: here p_β is p
    "resampling": {"proposals_per_draw": 4},
    "smc": {"particles": 32},
    "annealed": {"particles": 32, "conditional_size": 0.95},
    "metropolis": {"chains": 32, "burn_in": 40, "thin": 8, "moves": ("suffix", "token")},
}

spaces = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


def sampler_called(name: str, batch_size: int, **settings: Any) -> Any:
    sampler: Any = SAMPLERS[name]
    return sampler(**{**SETTINGS.get(name, {}), **settings}, batch_size=batch_size)


def truth(name: str, small: World, context: Context | None) -> tuple[Any, Tensor]:
    """The target, and P of every sequence: one row for each row of the context."""
    if name != "ancestral":
        return small.target, small.scores(context)
    everything = whole_space(small.space, context)
    log_prob = small.other.log_prob(everything, context).detach()
    return small.other, log_prob.exp().view(context_rows(context), -1)


def masses(small: World, batch: Weighted) -> Tensor:
    """The mean of w·1(x = s) for every sequence s, row by row."""
    rows, n = batch.log_weights.shape
    total = torch.zeros(rows, len(whole_space(small.space).lengths), dtype=torch.float64)
    row = torch.arange(rows).repeat_interleave(n)
    total.index_put_((row, small.index(batch.x)), batch.log_weights.double().exp().flatten() / n, accumulate=True)
    return total


def features(small: World) -> Tensor:
    """Of every sequence: 1, whether its first token is 1, whether its last but one is, its length, its number of 1s."""
    x = whole_space(small.space)
    ones = (x.tokens == 1) & x.mask()
    last_but_one = x.tokens.gather(1, (x.lengths - 2).clamp(min=0)[:, None]).squeeze(1) == 1
    columns = [torch.ones_like(x.lengths), ones[:, 0], last_but_one, x.lengths, ones.sum(1)]
    return torch.stack([column.double() for column in columns], 1)


def assert_unbiased(small: World, repetitions: Tensor, exact: Tensor) -> None:
    """For Z and for moments, unnormalised: E[mean of w·f] = Σ P·f."""
    moments = repetitions @ features(small)
    error = (moments.mean(0) - exact @ features(small)).abs()
    assert bool((error <= SIGMAS * moments.std(0) / len(moments) ** 0.5 + 1e-12).all())


@spaces
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_unbiased_for_z_and_moments_of_a_conditional_target(name, space):
    small = linear_world(space, conditions=3)
    context = small.context(100)
    target, exact = truth(name, small, small.context(1))
    sampler = sampler_called(name, 100_000)
    batch = draw(sampler, target, 32, context=context, generator=Generator().manual_seed(11))
    for condition, rows in enumerate(masses(small, batch).view(3, 100, -1)):
        assert_unbiased(small, rows, exact[condition])


@spaces
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_unbiased_for_z_and_moments_of_an_unconditional_target(name, space):
    """Batches are independent, whatever the sampler: each is a repetition."""
    small = linear_world(space)
    target, exact = truth(name, small, None)
    stream = sampler_called(name, 32).stream(target, 2_400, generator=Generator().manual_seed(12))
    batches = torch.cat([masses(small, batch) for batch in itertools.islice(stream, 75)])
    assert len(batches) == 75
    assert_unbiased(small, batches, exact[0])


@spaces
@pytest.mark.parametrize("conditions", [1, 3])
@pytest.mark.parametrize("name", DRAWS_ONLY)
def test_draws_have_the_moments_and_the_distribution_of_the_target(name, space, conditions):
    """n independent draws are within ½·Σ√(p(1−p)/n) + √(log(1/α)/2n) of p in total variation, but for α (McDiarmid);
    the mean of a feature of unit range is within √(log(2/α)/2n) (Hoeffding). As many chains as draws: independent."""
    small = linear_world(space, conditions=conditions)
    n, context = 10_000, small.conditional
    target, exact = truth(name, small, context)
    settings = {"chains": n} if name == "metropolis" else {}
    sampler = sampler_called(name, 100_000, **settings)
    x = draw(sampler, target, n, context=context, generator=Generator().manual_seed(13)).x
    found = masses(small, Weighted(x, torch.zeros(conditions, n)))
    p = exact / exact.sum(1, keepdim=True)
    total_variation = (found - p).abs().sum(1) / 2
    assert bool((total_variation < typical_distance(p, n)).all())
    first_is_one = (whole_space(space).tokens[:, 0] == 1).double()
    relative_length = whole_space(space).lengths / space.length
    for feature in (first_is_one, relative_length):
        error = (found @ feature.double() - p @ feature.double()).abs()
        assert float(error.max()) < (math.log(2 / CERTAINTY) / (2 * n)) ** 0.5


def typical_distance(p: Tensor, n: int) -> Tensor:
    typical: Tensor = (p * (1 - p) / n).sqrt().sum(-1) / 2
    return typical + math.sqrt(math.log(1 / CERTAINTY) / (2 * n))


@spaces
@pytest.mark.parametrize("log_beta", [-0.7, 0.0, 0.4])
def test_quasi_rejection_has_its_exact_total_variation_and_acceptance(space, log_beta):
    """TV(p_β, p) by enumeration; by the triangle inequality, that of n draws is within TV(n draws, p_β) of it."""
    small, n = linear_world(space), 40_000
    generator = Generator().manual_seed(14)
    score = small.scores()[0]
    q = small.target.base.log_prob(whole_space(space)).exp().detach()
    capped = torch.minimum(score, math.exp(log_beta) * q)
    p, p_beta = score / score.sum(), capped / capped.sum()
    exact = float((p - p_beta).abs().sum() / 2)
    assert exact > 0.03
    attempts = list(QuasiRejection(log_beta=log_beta).attempts(small.target, n, generator=generator))
    found = sum(
        masses(small, Weighted(part.x, torch.zeros(1, len(part.x.lengths))))[0] * len(part.x.lengths)
        for part in attempts
    )
    assert isinstance(found, Tensor)
    found = found / n
    bound = float(typical_distance(p_beta, n))
    assert float((found - p_beta).abs().sum() / 2) < bound
    assert abs(float((found - p).abs().sum() / 2) - exact) < bound
    rate = float(capped.sum()) / math.exp(log_beta)
    proposed = sum(int(part.proposed.sum()) for part in attempts)
    assert abs(n / proposed - rate) < SIGMAS * (rate * (1 - rate) / proposed) ** 0.5 + 1e-3
    pool = draw(sampler_called("importance", 50_000), small.target, 50_000, generator=generator).log_weights
    (point,) = trade_off(pool, torch.tensor([log_beta]))
    assert point.total_variation.value == pytest.approx(exact, abs=0.01)  # more than ten standard errors
    assert point.acceptance_rate.value == pytest.approx(rate, abs=0.01)


SIZES = (32, 64, 128, 256, 512)


@pytest.mark.parametrize("name", SAMPLERS)
def test_errors_fall_as_one_over_the_square_root_of_n(name):
    """The slope of log root-mean-square error on log n is −0.5 ± 0.1. Over 240 repetitions and four features its
    standard error is below 0.02, so that chance alone fails this less than once in 10⁶ runs."""
    small = linear_world(SPACES["ending"], conditions=3)
    context = small.context(80)
    target, exact = truth(name, small, context)
    p = exact / exact.sum(1, keepdim=True)
    settings = {"ladder": (0.4, 1.0), "conditional_size": 0.95} if name == "annealed" else {}
    sampler = sampler_called(name, 60_000, **settings)
    drawn = draw(sampler, target, SIZES[-1], context=context, generator=Generator().manual_seed(15))
    # Look-ahead's draws of one law stand together: shuffled, every part of them has its share of both.
    drawn = drawn.select(torch.randperm(SIZES[-1], generator=Generator().manual_seed(16)))
    values = features(small)[small.index(drawn.x), 1:].view(context.rows, SIZES[-1], 4)
    weights = drawn.log_weights.double().exp()[:, :, None]
    means = torch.stack([(weights * values)[:, :n].sum(1) / weights[:, :n].sum(1) for n in SIZES])
    errors = (means - p @ features(small)[:, 1:]).square().mean(1).sqrt().log()
    log_n = torch.tensor(SIZES, dtype=torch.float64).log()
    centred = (log_n - log_n.mean())[:, None]
    slope = ((centred * errors).sum(0) / centred.square().sum()).mean()
    assert -0.6 < float(slope) < -0.4
