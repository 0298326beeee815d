import math

import pytest
import torch

from ebar.automata.construction import intersection, stopping_noise, white_noise
from ebar.automata.motif import starts_with
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.divergences import divergence, entropy
from ebar.features.feature import Features
from ebar.maths.divergences import DIVERGENCES
from ebar.models.ngram import Tabular
from ebar.models.points import Boltzmann, GaussianMixture, standard_normal
from ebar.models.tilted import Tilted
from ebar.types import Space
from tests.estimators.conftest import Small, Starts

LEVEL = 0.999999  # 24 intervals a run: one false alarm in 40,000 runs


@pytest.fixture
def too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that nothing can be enumerated, so that the truth is known and yet sampled for."""
    monkeypatch.setattr(exact, "ENUMERABLE", 0)


def pairs(system: Small) -> dict[str, tuple[object, object]]:
    tilted = Tilted(system.other, Linear(system.features, torch.tensor([-0.5, 0.3], dtype=torch.float64)))
    return {
        "distributions": (system.base, system.other),
        "tilted and its base": (system.target, system.base),
        "distribution and tilted": (system.other, system.target),
        "both tilted": (system.target, tilted),
    }


@pytest.mark.parametrize("kind", DIVERGENCES)
@pytest.mark.parametrize("pair", ["distributions", "tilted and its base", "distribution and tilted", "both tilted"])
def test_sampled_divergences_agree_with_enumeration(system: Small, kind: str, pair: str, too_large, generator):
    p, q = pairs(system)[pair]
    truth = exact.divergence(kind, p, q, system.context).tolist()  # type: ignore[arg-type]
    found = divergence(kind, p, q, context=system.context, draws=4000, generator=generator, level=LEVEL)  # type: ignore[arg-type]
    assert len(found) == len(truth)
    for estimate, value in zip(found, truth, strict=True):
        assert estimate.low < value < estimate.high
        assert estimate.high - estimate.low < 0.35
        assert estimate.warning is None


def test_small_spaces_are_enumerated(system: Small):
    found = divergence("kl", system.target, system.other, context=system.context)
    assert [estimate.value for estimate in found] == pytest.approx(
        exact.divergence("kl", system.target, system.other, system.context).tolist()
    )
    assert all(estimate.low == estimate.high for estimate in found)


def test_two_automata_of_unbounded_length_go_by_their_own_recursion():
    # Geometric lengths: of k letters then the end, p = (1−s)^k·s/2^k. KL = (1/s − 1)·log((1−s)/(1−t)) + log(s/t).
    p, q = (stopping_noise(3, 2, stop=stop) for stop in (0.25, 0.5))
    expected = 3 * math.log(1.5) + math.log(0.5)
    backward = math.log(2 / 3) + math.log(2)
    assert divergence("kl", p, q)[0].value == pytest.approx(expected)
    assert divergence("reverse_kl", p, q)[0].value == pytest.approx(backward)
    assert entropy(q)[0].value == pytest.approx(3 * math.log(2))  # one letter in the mean: log 2 each, and H(½)·2


def test_automata_against_other_models(generator):
    # White noise conditioned on starting with 0 against a table: ln 2 apart in one direction, infinitely in the other.
    noise = white_noise(Space(2, 4))
    starts = intersection(noise, starts_with([0], 2))
    table = Tabular(Space(2, 4), torch.zeros(1, 15, 2, dtype=torch.float64))
    assert divergence("kl", starts, table)[0].value == pytest.approx(math.log(2))
    assert divergence("reverse_kl", starts, table)[0].value == math.inf
    # Of unbounded length there is nothing to enumerate: 99.9999 % interval.
    p = stopping_noise(3, 2, stop=0.5)
    tilted = Tilted(p, Linear(Features([Starts(0)]), torch.tensor([math.log(3)], dtype=torch.float64)))
    # It starts with 0 one time in four: Z = 1.5, KL(tilted‖p) = ½·log 3 − log 1.5.
    (estimate,) = divergence("kl", tilted, p, draws=4000, generator=generator, level=LEVEL)
    assert estimate.low < math.log(3) / 2 - math.log(1.5) < estimate.high


def test_a_proposal_may_be_named(system: Small, generator):
    found = divergence("kl", system.target, system.other, context=system.context, draws=4000,
                       proposal=system.other, generator=generator, level=LEVEL)  # fmt: skip
    truth = exact.divergence("kl", system.target, system.other, system.context).tolist()
    for estimate, value in zip(found, truth, strict=True):
        assert estimate.low < value < estimate.high


def test_a_model_is_at_no_distance_from_itself(system: Small, too_large, generator):
    for kind in DIVERGENCES:
        (*_, estimate) = divergence(
            kind, system.target, system.target, context=system.context, draws=100, generator=generator
        )
        assert estimate.value == pytest.approx(0.0, abs=1e-12)


def test_kl_is_infinite_where_support_is_missing_and_says_why(too_large, generator):
    full = Tabular(Space(2, 1), torch.tensor([[[0.5, 0.5]]], dtype=torch.float64).log())
    half = Tabular(Space(2, 1), torch.tensor([[[1.0, 0.0]]], dtype=torch.float64).log())
    (estimate,) = divergence("kl", full, half, draws=100, generator=generator)
    assert (estimate.value, estimate.low) == (math.inf, math.inf)
    assert "impossible" in str(estimate.warning)
    (estimate,) = divergence("kl", half, full, draws=100, generator=generator)
    assert estimate.value == pytest.approx(math.log(2))
    (estimate,) = divergence("total_variation", half, full, draws=1000, generator=generator)
    assert estimate.low < 0.5 < estimate.high


def test_a_rare_side_that_was_not_drawn_warns(too_large, generator):
    base = Tabular(Space(2, 1), torch.tensor([[[1 - 1e-6, 1e-6]]], dtype=torch.float64).log())
    target = Tilted(base, Linear(Features([Starts(1)]), torch.tensor([20.0], dtype=torch.float64)))
    (estimate,) = divergence("kl", target, base, draws=1000, generator=generator)
    assert "no draw has the feature" in str(estimate.warning)


def test_an_unknown_divergence_lists_the_real_ones(system: Small):
    with pytest.raises(UserError, match="jensen_shannon, kl, reverse_kl, total_variation"):
        divergence("hellinger", system.base, system.other)


def test_without_a_generator_torchs_own_seed_repeats_the_estimate(system: Small, too_large):
    torch.manual_seed(3)
    first = divergence("kl", system.base, system.other, draws=100)
    torch.manual_seed(3)
    assert divergence("kl", system.base, system.other, draws=100) == first
    assert divergence("kl", system.base, system.other, draws=100) != first


def test_sampled_entropies_agree_with_enumeration(system: Small, too_large, generator):
    for model in (system.base, system.target):
        truth = exact.entropy(model, system.context).tolist()
        found = entropy(model, context=system.context, draws=4000, generator=generator, level=LEVEL)
        for estimate, value in zip(found, truth, strict=True):
            assert estimate.low < value < estimate.high
            assert estimate.high - estimate.low < 0.35


def test_entropies_of_small_spaces_are_exact(system: Small):
    found = entropy(system.target, context=system.context)
    assert [estimate.value for estimate in found] == pytest.approx(
        exact.entropy(system.target, system.context).tolist()
    )


def test_a_target_none_of_which_was_drawn_has_no_divergence_and_no_entropy(too_large, generator):
    base = Tabular(Space(2, 1), torch.tensor([[[1.0, 0.0]]], dtype=torch.float64).log())
    target = Tilted(base, Linear(Features([Starts(0)]), torch.tensor([-math.inf], dtype=torch.float64)))
    (apart,) = divergence("total_variation", target, base, draws=200, generator=generator)
    (spread,) = entropy(target, draws=200, generator=generator)
    for estimate, most in ((apart, 1.0), (spread, math.inf)):
        assert math.isnan(estimate.value)
        assert (estimate.low, estimate.high) == (0.0, most)
        assert "nothing of the target was drawn" in str(estimate.warning)


def test_an_energy_with_no_base_is_compared_and_has_an_entropy_by_a_proposal(generator):
    """P = exp(−x²/2) in the plane is the normal density but for Z, whose entropy is log(2πe)."""
    bare, normal = Boltzmann(lambda x, context=None: x.square().sum(1) / 2), standard_normal(2)
    wide = GaussianMixture(torch.zeros(1, 2), 2.0)
    (spread,) = entropy(bare, proposal=wide, draws=20_000, generator=generator, level=LEVEL)
    assert spread.low < math.log(2 * math.pi * math.e) < spread.high
    assert spread.high - spread.low < 0.2
    (apart,) = divergence("kl", bare, normal, proposal=wide, generator=generator)
    assert apart.low == 0
    assert apart.value < 0.1
    with pytest.raises(ValueError, match="give a proposal"):
        entropy(bare)
