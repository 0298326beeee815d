"""Parts of an interval that show only where the others vanish, each by hand or where the truth is known."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.estimators.divergences import divergence, entropy
from ebar.estimators.draws import Support
from ebar.estimators.joint_perplexity import joint_perplexity
from ebar.estimators.last_step import last_step
from ebar.estimators.moments import moments
from ebar.estimators.per_step import Steps
from ebar.features.feature import Features
from ebar.maths.jackknife import half_width
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Context, Sequences, Space, Weighted
from tests.estimators.conftest import Starts
from tests.estimators.residual import conditions, residual

ONE_TOKEN = Space(2, 1)


@pytest.fixture
def too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that nothing can be enumerated, so that the truth is known and yet sampled for."""
    monkeypatch.setattr(exact, "ENUMERABLE", 0)


def table(*chances: float) -> Tabular:
    return Tabular(ONE_TOKEN, torch.tensor([[chances]], dtype=torch.float64).log())


def test_the_error_of_z_is_in_the_entropys_interval(too_large, generator):
    """q = (0.8, 0.2) and P = ½ on both: log P is constant, so all that is uncertain is Z. P/q is 0.625 or 2.5, its
    deviation ¾: half of a 95 % interval from 1,000 draws is 1.96·¾/√1,000 = 0.0465. The sampled deviation is off by
    2 % at most in one standard error: 15 % is more than seven of them."""
    coefficient = math.log(0.5 / 0.2) - math.log(0.5 / 0.8)
    target = Tilted(table(0.8, 0.2), Linear(Features([Starts(1)]), torch.tensor([coefficient], dtype=torch.float64)))
    (found,) = entropy(target, draws=1000, generator=generator)
    assert found.value == pytest.approx(math.log(2), abs=0.12)
    assert (found.high - found.low) / 2 == pytest.approx(0.0465, rel=0.15)


def test_the_two_ends_of_a_place_use_the_two_estimates_of_both_its_means():
    """log Â falls from 0.5 to 0.2 by T, and by 2J − T from 0.6 to 0.5, in all rows alike: no width but theirs."""
    lower, upper = (torch.tensor([ends], dtype=torch.float64).repeat(40, 1) for ends in ([0.5, 0.2], [0.6, 0.5]))
    log_q = torch.full((40, 1), -1.0, dtype=torch.float64)
    steps = Steps(log_q, log_q + lower[:, 1:] - lower[:, :-1], lower, upper, torch.ones(40, dtype=torch.long))
    (place,) = steps.places()
    difference, joint = place.difference, place.joint
    assert (difference.low, difference.value, difference.high) == pytest.approx((0.5 - 0.5, 0.5 - 0.2, 0.6 - 0.2))
    assert (joint.low, joint.value, joint.high) == pytest.approx((math.exp(1.0), math.exp(1.3), math.exp(1.4)))


def test_leaving_out_a_prefix_leaves_out_its_tokens():
    """With constant weights log Z = 0, and the difference is ΣE/Σlengths: its jackknife by leaving out each in turn."""
    energy = torch.tensor([-1.0, 2.0, 0.5, -3.0], dtype=torch.float64)
    lengths = torch.tensor([1, 10, 4, 2])
    draws = torch.zeros(4, 5, dtype=torch.float64)
    found = joint_perplexity(torch.full((4,), -8.0), energy, draws, lengths).difference
    rows = range(4)
    left = [sum(energy[i] for i in rows if i != j) / sum(lengths[i] for i in rows if i != j) for j in rows]
    width = float(half_width(torch.tensor(left, dtype=torch.float64)))
    assert found.value == pytest.approx(-1.5 / 17)
    assert (found.low, found.high) == pytest.approx((-1.5 / 17 - width, -1.5 / 17 + width))


def test_what_is_normalised_is_drawn_from_its_own_base_too(too_large, generator):
    """q makes one of the two tokens that p makes alike: KL(q‖p) = log 2, which q's own draws alone would call 0."""
    p = Tilted(table(0.5, 0.5), Linear(Features([Starts(0)]), torch.tensor([0.0], dtype=torch.float64)))
    (found,) = divergence("reverse_kl", p, table(1.0, 0.0), draws=2000, generator=generator, level=0.999999)
    assert found.low < math.log(2) < found.high
    assert found.high - found.low < 0.35


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_side_seen_in_any_batch_was_seen(order: tuple[int, int]):
    target = Tilted(table(0.5, 0.5), Linear(Features([Starts(1)]), torch.tensor([1.0], dtype=torch.float64)))
    support = Support(target)
    for token in order:
        x = Sequences(torch.full((3, 1), token), torch.ones(3, dtype=torch.long))
        support.see(x, 1)
    assert support.warnings(1) == [None]
    alone = Support(target)
    alone.see(Sequences(torch.full((3, 1), order[0]), torch.ones(3, dtype=torch.long)), 1)
    assert alone.warnings(1)[0] is not None


class Drawn:
    """A distribution that says what it draws and, asked again, how likely that was: nothing more."""

    def __init__(self, inner: Tabular):
        self.inner, self.space = inner, inner.space

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        return self.inner.sample(n, context, generator=generator)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return self.inner.log_prob(x, context)


def test_a_distribution_that_cannot_draw_and_score_at_once_is_asked_twice(too_large, generator):
    # KL = 0.5·log(0.5/0.8) + 0.5·log(0.5/0.2) = log 1.25.
    (found,) = divergence("kl", Drawn(table(0.5, 0.5)), table(0.8, 0.2), draws=500, generator=generator, level=0.999999)
    assert found.low < math.log(1.25) < found.high
    assert found.high - found.low < 0.5


def test_an_exact_last_step_has_an_interval_as_far_down_as_up(generator):
    small = residual()
    context = conditions(torch.arange(3).repeat(15))
    found = last_step(small.q, small.energy, small.q.sample(1, context, generator=generator), context)
    for cost in (found.base, found.joint, found.difference):
        assert cost.low < cost.value
        assert cost.value - cost.low == pytest.approx(cost.high - cost.value)


def test_one_draw_that_carries_everything_is_said_of_moments():
    x = Sequences(torch.tensor([[0], [1]] * 20), torch.ones(40, dtype=torch.long))
    weights = torch.where(torch.arange(40) == 0, 0.0, -30.0).double()[None]
    ((found,),) = moments(Weighted(x, weights), Features([Starts(1)]))
    assert found.effective_sample_size == pytest.approx(1.0)
    assert found.warning is not None
