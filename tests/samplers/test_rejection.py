import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from ebar.errors import UserError
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers import rejection
from ebar.samplers.draw import Bounded, draw
from ebar.samplers.importance import Ancestral
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space, Target
from tests.samplers.worlds import ENDING, FIXED, ScriptedCoin, world


def test_k_minus_1_over_n_minus_1_is_unbiased_for_the_acceptance_probability():
    """Σ_N C(N−1, k−1)·aᵏ(1−a)^(N−k)·(k−1)/(N−1) = a, summed exactly but for a tail below 1e-12; k/N is not."""
    a = Fraction(2, 5)
    for k in (2, 3, 7):
        law = [(n, math.comb(n - 1, k - 1) * a**k * (1 - a) ** (n - k)) for n in range(k, 120)]
        assert float(sum(p * Fraction(k - 1, n - 1) for n, p in law)) == pytest.approx(0.4, abs=1e-12)
        assert float(sum(p * Fraction(k, n) for n, p in law)) > 0.42


@pytest.mark.parametrize("batch_size", [4, 1000])
def test_proposals_are_counted_up_to_the_last_one_accepted(batch_size, monkeypatch, generator):
    """Acceptances at the 2nd, 3rd and 7th proposal: k = 3, N = 7, so Z is exp(log_bound)·2/6."""
    verdicts = [False, True, True, False, False, False, True, True, True, True] + [True] * 100
    coin = ScriptedCoin(verdicts)
    monkeypatch.setattr(rejection, "coin", coin)
    # A batch holds half as many draws as proposals: three draws need a batch of six.
    sampler = Rejection(log_bound=math.log(6.0), batch_size=max(batch_size, 6))
    (part,) = sampler.attempts(world(FIXED).target, 3, generator=generator)
    assert (part.accepted.tolist(), part.proposed.tolist()) == ([3], [7])
    assert part.acceptance_rate == pytest.approx(3 / 7)
    coin.tossed = 0
    (batch,) = sampler.stream(world(FIXED).target, 3, generator=generator)
    torch.testing.assert_close(batch.log_weights, torch.full((1, 3), math.log(2.0), dtype=torch.float64))


def test_one_draw_still_has_a_weight(generator):
    batch = draw(Rejection(), world(FIXED).target, 1, generator=generator)
    assert batch.log_weights.shape == (1, 1)
    assert bool(batch.log_weights.isfinite().all())


def test_a_bound_that_is_too_low_is_an_error_that_says_by_how_much(generator):
    small = world(ENDING)
    top = float(-small.target.energy(whole_space(ENDING)).min())  # over sequences; the table also holds prefixes
    with pytest.raises(UserError, match=f"by 0.5 nats.*at least {top:.6g}"):
        draw(Rejection(log_bound=top - 0.5), small.target, 2000, generator=generator)
    draw(Rejection(log_bound=top), small.target, 2000, generator=generator)


def test_where_no_bound_is_known_the_error_names_the_ways_out(generator):
    small = world(ENDING)
    unbounded = Tilted(small.target.base, lambda x, context=None: small.target.energy(x, context))
    for target, proposal in ((unbounded, None), (small.target, small.other)):
        with pytest.raises(UserError, match="give log_bound, or use quasi_rejection"):
            draw(Rejection(), target, 10, proposal=proposal, generator=generator)


def test_a_proposal_that_knows_its_bound_is_asked(generator):
    class Knowing(Tabular):
        def log_ratio_bound(self, target: Target) -> float | None:
            return self.known

        known: float | None = 7.0

    small = world(ENDING)
    knowing = Knowing(ENDING, small.other.logits.detach())
    assert Rejection().bound(small.target, knowing) == 7.0
    assert Rejection(log_bound=8.0).bound(small.target, knowing) == 8.0
    assert isinstance(small.target.energy, Bounded)
    assert Rejection().bound(small.target) == small.target.energy.log_bound()
    assert Rejection().bound(small.other) == 0.0
    knowing.known = None
    with pytest.raises(UserError, match="log_bound"):
        Rejection().bound(small.target, knowing)


@pytest.mark.parametrize(
    "sampler", [Rejection(log_bound=30.0, max_proposals=5000), QuasiRejection(log_beta=30.0, max_proposals=5000)]
)
def test_refusing_without_end_is_an_error_that_gives_the_acceptance(sampler, generator):
    with pytest.raises(UserError, match=r"5,000 proposals in a row.*acceptance so far 0\b"):
        draw(sampler, world(ENDING).target, 10, generator=generator)


def test_rows_that_have_enough_are_no_longer_proposed_for(generator):
    """Condition 0 accepts always, condition 1 one time in 20: a batch ends when the slow one has enough."""
    space = Space(vocabulary=2, length=1)
    base = Tabular(space, torch.zeros(2, 1, 2, dtype=torch.float64))

    def energy(x: Sequences, context: Context | None = None) -> Tensor:
        assert context is not None
        each = context.repeat(len(x.lengths) // context.rows)
        return math.log(20.0) * each.given.tokens[:, 0].double()

    context = Context(Sequences(torch.tensor([[0], [1]]), torch.ones(2, dtype=torch.long)))
    (part,) = Rejection(log_bound=0.0).attempts(Tilted(base, energy), 100, context=context, generator=generator)
    assert part.accepted.tolist() == [100, 100]
    assert int(part.proposed[0]) == 100
    assert 1000 < int(part.proposed[1]) < 4000  # mean 2000, deviation 195: under one false alarm in 10⁶


def test_ancestral_sampling_refuses_what_it_cannot_do(generator):
    small = world(ENDING)
    with pytest.raises(UserError, match="normaliser is not known"):
        draw(Ancestral(), small.target, 10, generator=generator)
    with pytest.raises(UserError, match="leave the proposal out"):
        draw(Ancestral(), small.other, 10, proposal=small.target.base, generator=generator)
    batch = draw(Ancestral(), small.other, 10, generator=generator)
    assert batch.log_weights.tolist() == [[0.0] * 10]
