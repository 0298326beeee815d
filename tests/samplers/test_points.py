"""Samplers on points: known moments are reached, exact kernels are exact, and what needs tokens says so."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.divergences import divergence, entropy
from ebar.estimators.log_z import log_z
from ebar.estimators.moments import moments
from ebar.features.feature import Features
from ebar.features.functions import PointFeature
from ebar.models.points import Boltzmann, GaussianMixture, UniformBox, biased_gaussians, standard_normal
from ebar.models.tilted import Tilted
from ebar.samplers.annealed import Annealed
from ebar.samplers.draw import Setting, draw, walkers_at
from ebar.samplers.files import load_draws, save_draws
from ebar.samplers.importance import Ancestral, Importance, Resampling
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.point_moves import POINT_MOVES, log_score_slope
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.samplers.smc import Smc
from ebar.types import Context, Estimate

TRUTH = GaussianMixture(
    torch.tensor([[-1.0, 0.0], [1.5, 1.0]]), torch.tensor([[0.5, 1.0], [1.0, 0.25]]), torch.tensor([0.3, 0.7])
).double()
FEATURES = [
    PointFeature("first", lambda x: x[:, 0]),
    PointFeature("second", lambda x: x[:, 1]),
    PointFeature("squared radius", lambda x: x.square().sum(1), low=0.0),
]
WANTED = [*TRUTH.mean().tolist(), float((TRUTH.variance() + TRUTH.mean().square()).sum())]
SMALL: dict[str, Any] = {"chains": 64, "burn_in": 60, "thin": 4}


def energy(x: Tensor, context: Context | None = None) -> Tensor:
    return 2.0 - TRUTH.log_prob(x)


BASE = GaussianMixture(torch.zeros(1, 2), 9.0).double()


def on_base() -> Tilted[Tensor, Any]:
    """log P = log q − E, so that P is e⁻² times the mixture."""
    return Tilted(BASE, lambda x, context=None: energy(x) + BASE.log_prob(x))


def seeded(number: int) -> Generator:
    return Generator().manual_seed(number)


def covered(estimates: list[Estimate]) -> bool:
    return all(found.low <= wanted <= found.high for found, wanted in zip(estimates, WANTED, strict=True))


# Three intervals at 0.99999 each: over the thirteen cases here a false alarm in some 2,500 seeds; one seed is fixed.
LEVEL = 0.99999
WEIGHTED: dict[str, Any] = {
    "importance": Importance(),
    "resampling": Resampling(),
    "quasi_rejection": QuasiRejection(),
    "rejection": Rejection(log_bound=1.0),
    "annealed": Annealed(step_size=1.0),
    "annealed by random walks": Annealed(moves=("random_walk",), step_size=1.0, ladder=(0.3, 0.7, 1.0)),
}


@pytest.mark.parametrize("sampler", WEIGHTED.values(), ids=WEIGHTED)
def test_weighted_draws_of_points_know_log_z_and_moments(sampler):
    drawn = draw(sampler, on_base(), 2000, generator=seeded(1))
    assert drawn.x.shape == (2000, 2)
    found = log_z(drawn, level=LEVEL)[0].estimate
    assert found.low <= -2 <= found.high
    assert found.high - found.low < 0.6
    assert covered(moments(drawn, FEATURES, level=LEVEL)[0])


@pytest.mark.parametrize("moves", [("random_walk",), ("langevin",), ("independent",), ("langevin", "random_walk")])
@pytest.mark.parametrize("alone", [False, True], ids=["with a base", "an energy alone"])
def test_chains_of_points_reach_the_moments_of_a_mixture(moves, alone):
    target: Any = Boltzmann(energy) if alone else on_base()
    drawn = draw(Metropolis(moves=moves, **SMALL), target, 1024, proposal=BASE, generator=seeded(2))
    assert not drawn.estimates_z
    assert drawn.groups is not None
    assert len(drawn.groups.unique()) == 64
    found = moments(drawn, FEATURES, level=LEVEL)[0]
    assert covered(found)
    assert all(estimate.warning is None and estimate.effective_sample_size > 150 for estimate in found)
    with pytest.raises(UserError, match="say nothing of Z"):
        log_z(drawn)


def test_metropolis_on_points_takes_langevin_moves_by_default():
    default = draw(Metropolis(**SMALL), on_base(), 128, generator=seeded(3))
    named = draw(Metropolis(moves=("langevin",), **SMALL), on_base(), 128, generator=seeded(3))
    assert torch.equal(default.x, named.x)


def test_unadjusted_langevin_is_off_by_what_is_known_of_a_gaussian_and_warns():
    """x′ = (1 − s²/2)·x + s·ξ keeps N(0, 1/(1 − s²/4)): with s = 1 a variance of 4/3. Six standard errors."""
    one = standard_normal(1).double()
    squared = PointFeature("square", lambda x: x[:, 0].square(), low=0.0)
    options: dict[str, Any] = {
        "moves": ("unadjusted_langevin",),
        "step_size": 1.0,
        "chains": 500,
        "burn_in": 30,
        "thin": 10,
    }
    drawn = draw(Metropolis(**options), one, 4000, generator=seeded(4))
    found = moments(drawn, [squared])[0][0]
    assert found.value == pytest.approx(4 / 3, abs=6 * math.sqrt(2 / 4000) * 4 / 3)
    assert found.value > 1.2
    assert "unadjusted Langevin moves are off" in str(found.warning)
    exact = draw(Metropolis(moves=("langevin",), step_size=1.0, chains=500, burn_in=30), one, 4000, generator=seeded(4))
    right = moments(exact, [squared], level=LEVEL)[0][0]
    assert right.low <= 1 <= right.high < 1.2
    assert right.warning is None


@pytest.mark.parametrize("name", ["random_walk", "langevin"])
def test_a_move_of_points_is_in_detailed_balance(name):
    """log P(x)·K(x→y) + log of the ratio it gives is log P(y)·K(y→x), with K written down anew."""
    target, size = on_base(), 0.7
    setting: Setting[Tensor] = Setting(target, target.base, None, seeded(5))
    x = target.base.sample(40, generator=seeded(6))
    walkers = walkers_at(setting, x, target.base.log_prob(x))
    there, log_ratio = POINT_MOVES[name].propose(walkers, setting, size)
    y = there.x

    def log_kernel(start: Tensor, end: Tensor) -> Tensor:
        drift = size**2 / 2 * _slope(start) if name == "langevin" else torch.zeros_like(start)
        found: Tensor = torch.distributions.Normal(start + drift, size).log_prob(end).sum(1)
        return found

    forth = target.log_score(x) + log_kernel(x, y)
    back = target.log_score(y) + log_kernel(y, x)
    assert torch.allclose(log_ratio + there.log_weight - walkers.log_weight, back - forth, atol=1e-9)


def _slope(x: Tensor) -> Tensor:
    """By finite differences."""
    columns = []
    for column in range(2):
        shift = torch.zeros_like(x)
        shift[:, column] = 1e-5
        columns.append((on_base().log_score(x + shift) - on_base().log_score(x - shift)) / 2e-5)
    slope = torch.stack(columns, 1)
    setting: Setting[Tensor] = Setting(on_base(), BASE, None, seeded(0))
    assert torch.allclose(slope, log_score_slope(setting, x), atol=1e-6)
    return log_score_slope(setting, x)


def test_a_chain_finds_its_step_size_while_it_burns_in():
    chains = Metropolis(moves=("langevin",), chains=64, burn_in=80, thin=20)
    tiny = GaussianMixture(torch.zeros(1, 2), 1e-4).double()
    target = Boltzmann(lambda x, context=None: -tiny.log_prob(x))
    parts = list(chains.attempts(target, 256, proposal=tiny, generator=seeded(7)))
    later = [part.acceptance_rate for part in parts[1:]]
    assert all(0.4 < rate < 0.75 for rate in later)  # wanted: 0.574
    assert len(parts) == 4


def test_divergences_and_entropies_of_points():
    """Closed forms of Gaussians: KL(N(0,1)‖N(0,4)) = log 2 + 1/8 − ½ and an entropy of 1 + log 2π in the plane."""
    one, wide = standard_normal(1).double(), GaussianMixture(torch.zeros(1, 1), 4.0).double()
    found = divergence("kl", one, wide, draws=4000, generator=seeded(8), level=LEVEL)[0]
    assert found.low <= math.log(2) + 1 / 8 - 1 / 2 <= found.high
    assert found.high - found.low < 0.1
    same = divergence("jensen_shannon", on_base(), TRUTH, draws=4000, generator=seeded(8))[0]
    assert same.value < 1e-4
    drawn = draw(Importance(), on_base(), 4000, generator=seeded(9))
    assert divergence("total_variation", on_base(), TRUTH, draws=drawn)[0].value < 0.05
    flat = entropy(standard_normal(2).double(), draws=4000, generator=seeded(8), level=LEVEL)[0]
    assert flat.low <= 1 + math.log(2 * math.pi) <= flat.high
    narrow = GaussianMixture(torch.zeros(1, 1), 1e-4).double()  # whose entropy is negative
    below = entropy(narrow, draws=4000, generator=seeded(8), level=LEVEL)[0]
    assert below.low <= (1 + math.log(2 * math.pi * 1e-4)) / 2 <= below.high < 0


def test_a_linear_energy_of_points_is_bounded_and_its_support_checked():
    half = PointFeature("right", lambda x: x[:, 0] > 0, 0.0, 1.0)
    p = Tilted(standard_normal(2).double(), Linear(Features([half]), torch.tensor([math.log(3)]).double()))
    drawn = draw(Rejection(), p, 1000, generator=seeded(10))  # by the bound of the energy itself
    assert log_z(drawn, level=LEVEL)[0].estimate.low <= math.log(2) <= log_z(drawn, level=LEVEL)[0].estimate.high
    found = moments(drawn, [half], level=LEVEL)[0][0]
    assert found.low <= 0.75 <= found.high
    far = PointFeature("far", lambda x: x[:, 0] > 50, 0.0, 1.0)
    never = Tilted(standard_normal(2).double(), Linear(Features([far]), torch.tensor([1.0]).double()))
    assert "far" in str(log_z(draw(Importance(), never, 100, generator=seeded(1)))[0].estimate.warning)
    with pytest.raises(UserError, match="advanced token by token: use importance instead"):
        draw(LookAhead(), p, 10, generator=seeded(1))


def test_images_are_drawn_and_weighed_as_points_are():
    box = UniformBox(torch.zeros(1, 4, 4), torch.ones(1, 4, 4))
    p = Tilted(box, lambda x, context=None: 16 * x.mean((1, 2, 3)))  # each pixel with e⁻ˣ on [0, 1]
    drawn = draw(Importance(), p, 4000, generator=seeded(11))
    assert drawn.x.shape == (4000, 1, 4, 4)
    found = log_z(drawn, level=LEVEL)[0].estimate
    assert found.low <= 16 * math.log(1 - math.exp(-1)) <= found.high
    mean = PointFeature("grey", lambda x: x.mean((1, 2, 3)))
    found = moments(drawn, [mean], level=LEVEL)[0][0]
    assert found.low <= 1 - 1 / (math.e - 1) <= found.high
    # Pixels of N(0, 1), tilted by e^(−x/4): N(−¼, 1).
    tilted = Tilted(GaussianMixture(torch.zeros(1, 1, 4, 4)), lambda x, context=None: x.sum((1, 2, 3)) / 4)
    moved = moments(draw(Metropolis(**SMALL), tilted, 512, generator=seeded(12)), [mean], level=LEVEL)[0][0]
    assert moved.low <= -0.25 <= moved.high < -0.1


def test_ancestral_draws_weigh_one_and_the_generator_decides_everything():
    drawn = draw(Ancestral(), TRUTH, 100, generator=seeded(13))
    assert torch.equal(drawn.x, draw(Ancestral(), TRUTH, 100, generator=seeded(13)).x)
    assert bool((drawn.log_weights == 0).all())
    for sampler in (Metropolis(**SMALL), Resampling(), QuasiRejection()):
        before = torch.get_rng_state()
        first, again = (draw(sampler, on_base(), 60, generator=seeded(14)) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first.x, again.x)
        assert not first.x.requires_grad


def test_draws_of_points_are_kept_on_disk(tmp_path):
    options: dict[str, Any] = {"moves": ("unadjusted_langevin",), "step_size": 0.1, "chains": 4, "burn_in": 1}
    drawn = draw(Metropolis(**options), TRUTH, 8, generator=seeded(15))
    save_draws(drawn, tmp_path / "draws")
    read = load_draws(tmp_path / "draws")
    assert torch.equal(read.x, drawn.x)
    assert read.groups is not None
    assert read.groups.tolist() == list(range(8))  # four chains in two segments
    assert read.doubt == drawn.doubt is not None
    assert not read.estimates_z


class Column(nn.Module):
    def forward(self, x: Tensor, context: None = None) -> Tensor:
        return x[:, :1]


@pytest.mark.parametrize(
    ("sampler", "target", "sentence"),
    [
        (Smc(), on_base(), "goes token by token: use importance"),
        (LookAhead(), on_base(), "tilted by a linear energy"),
        (Annealed(), on_base(), "moves them by a step_size: give one, in the units of x"),
        (Annealed(moves=("unadjusted_langevin",), step_size=1.0), on_base(), "which unadjusted ones do not"),
        (Ancestral(), on_base(), "cannot be drawn from, because its normaliser is not known: use rejection"),
        (Metropolis(moves=("token",)), on_base(), "'token' redraws tokens, which points do not have: choose one of"),
        (Metropolis(moves=("hop",)), on_base(), "no move of points called 'hop': choose one of"),
        (Importance(), Tilted(BASE, Column()), r"energy of 10 points must have shape \[10\], not \[10, 1\].*squeeze"),
        (Importance(), Boltzmann(energy), "no base distribution to propose from: give a proposal"),
        (Importance(), Tilted(BASE, lambda x, context=None: x[:, 0] * math.nan), r"weight of the point \[.*\] is nan"),
        (Metropolis(burn_in=3), Tilted(BASE, lambda x, context=None: x[:, 0] * 0 + math.inf), "not found a point"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_sentence(sampler, target, sentence):
    with pytest.raises(UserError, match=sentence):
        draw(sampler, target, 10, generator=seeded(0))


def test_an_energy_without_a_gradient_is_refused_by_langevin():
    target = Boltzmann(lambda x, context=None: x.detach().square().sum(1))
    with pytest.raises(UserError, match="this one has none: use random_walk"):
        draw(Metropolis(), target, 10, proposal=BASE, generator=seeded(0))
    sharp = Boltzmann(lambda x, context=None: (x - x.detach()).norm(dim=1).sqrt())
    with pytest.raises(UserError, match=r"not finite at the point \[.*\]: check the energy there, or use random_walk"):
        draw(Metropolis(), sharp, 10, proposal=BASE, generator=seeded(0))


def test_biased_weights_of_a_mixture_are_found():
    """0.9 and 0.1 on the two sides: what a chain stuck in its mode could not tell."""
    truth = biased_gaussians().double()
    right = PointFeature("upper right", lambda x: x.sum(1) > 0, 0.0, 1.0)
    wide = GaussianMixture(torch.zeros(1, 2), 25.0).double()
    target = Boltzmann(lambda x, context=None: -truth.log_prob(x))
    sampler = Metropolis(moves=("random_walk", "independent"), chains=100, burn_in=40, thin=4)
    found = moments(draw(sampler, target, 1000, proposal=wide, generator=seeded(16)), [right], level=LEVEL)[0][0]
    below = float(torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(2 * 3.48796 / math.sqrt(10))))
    wanted = 0.1 * below + 0.9 * (1 - below)
    assert found.low <= wanted <= found.high
    assert found.high < 0.2
