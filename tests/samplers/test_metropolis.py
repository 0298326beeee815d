import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.annealed import Annealed, next_rung
from ebar.samplers.draw import draw
from ebar.samplers.metropolis import Metropolis, integrated_autocorrelation_time
from ebar.samplers.smc import Smc
from ebar.types import Context, Sequences
from tests.samplers.worlds import ENDING, FIXED, world


class NotStepwise:
    def __init__(self, model: Tabular):
        self.model, self.space = model, model.space

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        return self.model.sample(n, context, generator=generator)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return self.model.log_prob(x, context)


def test_an_independent_chain_whose_target_is_its_proposal_always_moves(generator):
    base = world(ENDING).other
    sampler = Metropolis(moves=("independent",), chains=50, burn_in=4, thin=3)
    first, second = sampler.attempts(base, 100, generator=generator)
    assert (first.accepted.tolist(), first.proposed.tolist()) == ([200], [200])
    assert (second.accepted.tolist(), second.proposed.tolist()) == ([150], [150])


def test_token_moves_alone_are_refused_where_sequences_end(generator):
    with pytest.raises(UserError, match='"token", "suffix"'):
        draw(Metropolis(moves=("token",)), world(ENDING).target, 5, generator=generator)
    draw(Metropolis(moves=("token",)), world(FIXED).target, 5, generator=generator)
    with pytest.raises(UserError, match="no move called 'jump': choose one of independent, suffix, token"):
        draw(Metropolis(moves=("jump",)), world(FIXED).target, 5, generator=generator)


def test_a_proposal_that_is_not_stepwise_serves_where_it_can(generator):
    small = world(ENDING)
    whole = NotStepwise(small.other)
    draw(Metropolis(moves=("independent",), burn_in=2), small.target, 5, proposal=whole, generator=generator)
    with pytest.raises(UserError, match="independent move"):
        draw(Metropolis(), small.target, 5, proposal=whole, generator=generator)
    with pytest.raises(UserError, match="token by token"):
        draw(Smc(), small.target, 5, proposal=whole, generator=generator)


def test_chains_that_never_find_the_target_are_an_error(generator):
    small = world(ENDING)
    nowhere = Tilted(small.other, lambda x, context=None: torch.full((len(x.lengths),), math.inf).double())
    with pytest.raises(UserError, match="7 of 7 chains"):
        draw(Metropolis(burn_in=3), nowhere, 7, generator=generator)


def test_the_autocorrelation_time_of_an_autoregression_is_known(generator):
    """xₜ = ρxₜ₋₁ + noise has τ = (1 + ρ)/(1 − ρ); with 200 chains of 4,000 the error is well under a tenth."""
    for rho in (0.0, 0.5, 0.9):
        noise = torch.randn(4000, 200, dtype=torch.float64, generator=generator)
        steps = [noise[0] / (1 - rho**2) ** 0.5]
        for shock in noise[1:]:
            steps.append(rho * steps[-1] + shock)
        values = torch.stack(steps, 1)
        expected = (1 + rho) / (1 - rho)
        assert integrated_autocorrelation_time(values) == pytest.approx(expected, rel=0.1)
        assert values.numel() / integrated_autocorrelation_time(values) == pytest.approx(800_000 / expected, rel=0.1)


def test_chains_stuck_apart_are_worth_no_more_than_their_number():
    stuck = torch.arange(10, dtype=torch.float64)[:, None].expand(10, 1000)
    assert stuck.numel() / integrated_autocorrelation_time(stuck) < 25
    assert integrated_autocorrelation_time(torch.ones(3, 50)) == 1.0


def test_a_rung_is_as_high_as_the_conditional_effective_sample_size_allows():
    """Two particles of equal weight, w = 1 and e: (1 + e^Δ)² / (2·(1 + e^2Δ)) = c at tanh²(Δ/2) = 1/c − 1."""
    log_ratio = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    expected = 2 * math.atanh((1 / 0.96 - 1) ** 0.5)
    rung = next_rung(zeros[:, 0], zeros, log_ratio, 0.96)
    assert float(rung) == pytest.approx(expected, abs=1e-6)
    assert float(next_rung(zeros[:, 0], zeros, log_ratio / 10, 0.96)) == 1.0
    assert float(next_rung(zeros[:, 0] + 0.9, zeros, log_ratio, 0.96)) == 1.0
    dead = torch.tensor([[0.0, 1.0, -math.inf]], dtype=torch.float64)
    both = next_rung(zeros[:, 0], torch.zeros(1, 3, dtype=torch.float64), dead, 0.96)
    assert float(both) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ladder", [(0.5,), (0.5, 0.4, 1.0), (0.0, 1.0), (0.5, 1.5)])
def test_a_ladder_that_does_not_rise_to_one_is_an_error(ladder, generator):
    with pytest.raises(UserError, match="must rise"):
        draw(Annealed(ladder=ladder), world(ENDING).target, 5, generator=generator)


def test_a_target_that_is_zero_wherever_the_proposal_goes_gives_weights_of_zero(generator):
    small = world(ENDING)
    nowhere = Tilted(small.other, lambda x, context=None: torch.full((len(x.lengths),), math.inf).double())
    for sampler in (Smc(particles=8), Annealed(particles=8)):
        batch = draw(sampler, nowhere, 16, generator=generator)
        assert batch.log_weights.tolist() == [[-math.inf] * 16]
