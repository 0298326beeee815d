"""A.2's P_filtered = r·1[a ∈ x], λ = −∞: every sampler and figure gives its exact moments."""

import math
from typing import Any

import pytest
import torch

from ebar.automata.construction import intersection, white_noise
from ebar.automata.measures import probability
from ebar.automata.motif import contains
from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.estimators.log_z import log_z
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.features.counts import NgramCount
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.types import Estimate, Sequences, Space

COINS = Space(vocabulary=2, length=2)
SPACE = Space(vocabulary=3, length=6, end=2)  # up to five bits
ZEROS = Features([NgramCount(ngram="0", alphabet="01", end=2, longest=6), Motif(motif="11", alphabet="01", end=2)])


def filtered(base: Tabular, symbol: str = "1", end: int | None = 2) -> Any:
    absent = Features([Motif(motif=symbol, alphabet="01", end=end, absent=True)])
    return Tilted(base, Linear(absent, torch.tensor([-math.inf], dtype=torch.float64)))


def fair(space: Space) -> Tabular:
    return Tabular(space, torch.zeros(1, number_of_prefixes(space), space.vocabulary, dtype=torch.float64))


def test_two_fair_coins_of_which_one_shows_heads():
    # 01, 10 and 11 are left of four: Z = ¾, each has ⅓.
    model = filtered(fair(COINS), end=None)
    assert exact.log_z(model).exp().tolist() == pytest.approx([3 / 4])
    assert exact.log_probabilities(model)[0].exp().tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])


def test_what_is_left_keeps_its_proportions(generator):
    base = Tabular.random(SPACE, generator=generator)
    has = Motif(motif="1", alphabet="01", end=2)(all_sequences(SPACE)) == 1
    log_r, log_p = exact.log_probabilities(base)[0], exact.log_probabilities(filtered(base))[0]
    torch.testing.assert_close(log_p[has], log_r[has] - log_r[has].logsumexp(0))
    assert bool((log_p[~has] == -math.inf).all())


def test_log_z_is_the_log_of_the_chance_under_r_by_enumeration_and_by_automata(generator):
    base = Tabular.random(SPACE, generator=generator)
    chance = exact.moments(base, Features([Motif(motif="1", alphabet="01", end=2)]))
    torch.testing.assert_close(exact.log_z(filtered(base)), chance.log()[0], rtol=0, atol=1e-12)
    noise, motif = white_noise(Space(2, 8)), "101"
    dfa = contains([1, 0, 1], 2)
    ours = exact.log_z(filtered(fair(Space(2, 8)), motif, None)).item()
    assert ours == pytest.approx(math.log(probability(noise, dfa)), abs=1e-12)
    assert ours == pytest.approx(intersection(noise, dfa).log_partition, abs=1e-12)


# Four samplers, two moments each at 4.7 standard errors, two-sided: a false alarm in 48,000 runs.
SIGMAS = 4.7


@pytest.mark.parametrize(
    "sampler", [Rejection(), QuasiRejection(), LookAhead(), Importance()], ids=lambda s: type(s).__name__
)
def test_every_sampler_has_the_exact_moments_and_never_what_is_forbidden(sampler, generator):
    model = filtered(Tabular.random(SPACE, generator=generator), "11")
    truth = exact.moments(model, ZEROS)[0].detach()
    assert truth[1] == pytest.approx(1.0, abs=1e-12)
    drawn = draw(sampler, model, 5000, generator=generator)
    shares = drawn.log_weights[0].double().softmax(0)
    values = ZEROS(drawn.x)
    assert bool((values[shares > 0, 1] == 1).all())
    means = (shares[:, None] * values).sum(0)
    errors = (shares.square()[:, None] * (values - means).square()).sum(0).sqrt()
    assert bool(((means - truth).abs() <= SIGMAS * errors + 1e-12).all())
    # Rejection's draws share one estimate of Z in each group: those are its units.
    found = log_z(sampler.stream(model, 5000, generator=generator), target=model)
    width = (found[0].estimate.high - found[0].estimate.low) / 2 * SIGMAS / 1.96
    assert abs(found[0].estimate.value - float(exact.log_z(model).detach())) < width + 1e-9 or width == math.inf


def test_no_draw_of_rejection_is_refused_for_anything_but_the_constraint(generator):
    base = Tabular.random(SPACE, generator=generator)
    model = filtered(base)
    assert Rejection().bound(model) == 0.0
    (part,) = Rejection(batch_size=8000).attempts(model, 2000, generator=generator)
    chance = float(exact.log_z(model).detach().exp())
    rate = 1999 / (int(part.proposed) - 1)  # unbiased, its deviation p·√((1−p)/k)
    assert abs(rate - chance) < 4.5 * chance * math.sqrt((1 - chance) / 2000)


def test_look_ahead_needs_no_luck(generator):
    # Under fair coins the surrogate is the base, so every weight is Z itself, rare as the motif is.
    model = filtered(fair(Space(2, 10)), "1011011", None)
    drawn = draw(LookAhead(surrogate="uniform", defence=0.0), model, 50, generator=generator)
    expected = exact.log_z(model).detach()[0].expand(50)
    torch.testing.assert_close(drawn.log_weights[0], expected, rtol=0, atol=1e-9)


def test_data_that_break_the_constraint_cost_infinitely_much(generator):
    model = filtered(fair(COINS), end=None)
    z = Estimate.exact(float(exact.log_z(model).detach()))
    keeps = Sequences(torch.tensor([[0, 1], [1, 1]]), torch.tensor([2, 2]))
    found = cross_entropy(model, keeps, log_z=z)
    assert found.per_sequence.value == pytest.approx(math.log(3))
    breaks = Sequences(torch.tensor([[0, 1], [0, 0]]), torch.tensor([2, 2]))
    found = cross_entropy(model, breaks, log_z=z)
    assert found.per_sequence.value == math.inf
    assert found.perplexity.value == math.inf
    assert (found.per_sequence.low, found.per_sequence.high) == (math.inf, math.inf)
