"""Proper weighting without Monte Carlo: over every path a sampler can take, E[mean of w·1(x)] is P(x) to 1e-10."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.models.ngram import TabularState, number_of_prefixes
from ebar.models.tilted import Tilted
from ebar.samplers.annealed import Annealed
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance, Resampling
from ebar.samplers.smc import Smc
from ebar.types import Distribution, Sampler, Space
from tests.samplers.tracing import TracedTabular, Tracer, traced
from tests.samplers.worlds import Rugged, World


@pytest.fixture
def tracer(monkeypatch):
    return traced(monkeypatch)


class Foresight(TracedTabular):
    """A proposal that guesses, at random: no guess may matter for what comes out on average."""

    guesses: Tensor

    def expected_log_weight(self, state: TabularState) -> Tensor:
        shorter = sum(self.space.vocabulary**place for place in range(state.place))
        return self.guesses[shorter + state.prefix]


def traced_world(space: Space, tracer: Tracer, seed: int = 5) -> World:
    generator = Generator().manual_seed(seed)
    base = TracedTabular.random(space, generator=generator)
    other = Foresight.random(space, generator=generator)
    assert isinstance(base, TracedTabular)
    assert isinstance(other, Foresight)
    other.guesses = 1.5 * torch.randn(number_of_prefixes(space), dtype=torch.float64, generator=generator)
    energy = Rugged(space, 1, 1.0, generator)
    return World(Tilted(base.traced_by(tracer), energy), other.traced_by(tracer), 1)


def average(sampler: Sampler, n: int, small: World, proposal: Distribution | None, tracer: Tracer) -> Tensor:
    total, certainty = torch.zeros_like(small.scores()[0]), 0.0
    for probability, batch in tracer.every_path(
        lambda: draw(sampler, small.target, n, proposal=proposal, generator=Generator())
    ):
        assert batch.log_weights.shape == (1, n)
        weights = batch.log_weights[0].exp() / n
        total = total.index_add(0, small.index(batch.x), probability * weights)
        certainty += probability
    assert certainty == pytest.approx(1.0, abs=1e-10)
    return total


TINY = {
    "ending": Space(vocabulary=3, length=2, end=0),
    "fixed": Space(vocabulary=2, length=2),
}


def check(sampler: Sampler, n: int, space: Space, proposal: str, tracer: Tracer) -> None:
    small = traced_world(space, tracer)
    q = small.other if proposal == "other" else None
    torch.testing.assert_close(average(sampler, n, small, q, tracer), small.scores()[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("space", TINY)
@pytest.mark.parametrize("proposal", ["base", "other"])
def test_importance_sampling(space, proposal, tracer):
    check(Importance(), 2, TINY[space], proposal, tracer)


@pytest.mark.parametrize("space", TINY)
@pytest.mark.parametrize("proposal", ["base", "other"])
@pytest.mark.parametrize("resampling", ["systematic", "multinomial"])
def test_sampling_importance_resampling(space, proposal, resampling, tracer):
    check(Resampling(proposals_per_draw=2, resampling=resampling), 1, TINY[space], proposal, tracer)


@pytest.mark.parametrize("space", TINY)
@pytest.mark.parametrize(
    ("proposal", "twist", "resampling"),
    [
        ("base", "none", "systematic"),
        ("base", "energy", "systematic"),
        ("other", "none", "systematic"),
        ("other", "energy", "multinomial"),
        ("other", "potential", "systematic"),
    ],
)
def test_sequential_monte_carlo(space, proposal, twist, resampling, tracer):
    check(Smc(threshold=1.0, twist=twist, resampling=resampling), 2, TINY[space], proposal, tracer)


@pytest.mark.parametrize("space", [Space(vocabulary=3, length=3, end=0), Space(vocabulary=2, length=3)])
def test_sequential_monte_carlo_that_resamples_only_when_it_must(space, tracer):
    check(Smc(threshold=0.7), 2, space, "other", tracer)


@pytest.mark.parametrize("moves", [("independent",), ("suffix",), ("token", "suffix")])
def test_annealing_a_single_particle(moves, tracer):
    check(Annealed(ladder=(0.3, 1.0), moves=moves, moves_per_rung=1), 1, TINY["ending"], "other", tracer)


@pytest.mark.parametrize("resampling", ["systematic", "multinomial"])
def test_annealing_a_system_that_resamples(resampling, tracer):
    sampler = Annealed(ladder=(0.4, 1.0), threshold=1.0, moves=("suffix",), moves_per_rung=1, resampling=resampling)
    check(sampler, 2, Space(vocabulary=2, length=1), "other", tracer)


def test_a_prefix_of_infinite_energy_does_not_kill_what_could_still_become_good(tracer):
    """Only «1 1» has P > 0: after one token every prefix has infinite energy, yet Z must come out."""
    small = traced_world(TINY["fixed"], tracer)

    def both_ones(x, context=None):
        return torch.where((x.tokens[:, :2].sum(1) == 2) & (x.lengths == 2), 0.0, math.inf).double()

    small.target.energy = both_ones
    total = average(Smc(threshold=1.0, twist="energy"), 2, small, None, tracer)
    torch.testing.assert_close(total, small.scores()[0], atol=1e-10, rtol=0)
    assert float(total.sum()) > 0
