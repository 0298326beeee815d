"""Distributions and moves of points, and the grid they are compared on: numbers worked out on paper."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.evaluation.grid import (
    Grid,
    density_on_grid,
    discriminator_on_grid,
    energy_on_grid,
    grid_around,
    grid_kl,
    grid_log_z,
    grid_moments,
    histogram,
    pairwise_kl,
)
from ebar.features.feature import Features
from ebar.features.functions import PointFeature
from ebar.maths import mixtures
from ebar.models.points import (
    Boltzmann,
    GaussianMixture,
    UniformBox,
    biased_gaussians,
    four_gaussians,
    spirals,
    standard_normal,
)
from ebar.models.tilted import Tilted
from ebar.samplers.draw import Setting, Walkers, walkers_at
from ebar.samplers.metropolis import step
from ebar.samplers.point_moves import PointMove, langevin, random_walk, unadjusted_langevin
from ebar.types import Context, Sequences, Weighted

LOG_TWO_PI = math.log(2 * math.pi)


def doubles(*numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_the_density_of_one_gaussian_and_of_two():
    x = doubles([0.0, 0.0], [1.0, 0.0])
    assert standard_normal(2).double().log_prob(x).tolist() == pytest.approx([-LOG_TWO_PI, -LOG_TWO_PI - 0.5])
    narrow = GaussianMixture(doubles([0.0, 0.0]), doubles([0.25, 4.0]))
    assert float(narrow.log_prob(x)[1]) == pytest.approx(-LOG_TWO_PI - 0.5 / 0.25)  # standard deviations ½ and 2
    two = GaussianMixture(doubles([-1.0], [1.0]), 1.0, doubles(3, 1))
    # At 1: ¾·e⁻² + ¼ of the density at a mean.
    assert float(two.log_prob(doubles([1.0]))) == pytest.approx(
        math.log(0.75 * math.exp(-2) + 0.25) - LOG_TWO_PI / 2
    )  # fmt: skip


def test_the_mean_and_the_variance_of_a_mixture():
    two = biased_gaussians().double()
    at = 3.48795921713603
    assert two.mean().tolist() == pytest.approx([-0.8 * at] * 2)
    assert two.variance().tolist() == pytest.approx([5 + at**2 * (1 - 0.64)] * 2)


def test_the_three_mixtures_are_those_of_the_authors():
    four = mixtures.four_gaussians()
    assert four.means.sign().tolist() == [[1, 1], [-1, 1], [1, -1], [-1, -1]]
    assert four.means.abs().unique().tolist() == pytest.approx([7.659], abs=1e-3)
    assert four.variances.flatten().tolist() == pytest.approx(
        [5.18, 2.97, 5.56, 9.23, 9.47, 4.61, 7.42, 3.66], abs=5e-3
    )  # fmt: skip
    two = mixtures.biased_gaussians()
    assert two.means[0].tolist() == pytest.approx([3.488] * 2, abs=1e-3)  # of weight 0.1
    assert two.weights.tolist() == [0.1, 0.9]
    arms = mixtures.spirals()
    assert len(arms.means) == 100
    radius = 2 * math.pi / 3  # the first angle, 120°; −cos is ½ there, sin √3/2
    assert arms.means[0].tolist() == pytest.approx([radius / 2, radius * math.sqrt(3) / 2])
    assert arms.means[50].tolist() == pytest.approx([-radius / 2, -radius * math.sqrt(3) / 2])
    assert float(arms.means[49].norm()) == pytest.approx(8 * math.pi / 3)  # 480°
    assert float(arms.variances.unique()) == pytest.approx(0.2025)
    assert float(mixtures.spirals("energy").variances.unique()) == 1
    with pytest.raises(UserError, match="no convention of the spirals called 'noise': choose one of data, energy"):
        spirals("noise")


def test_a_box_is_flat_inside_and_empty_outside():
    box = UniformBox(doubles(0, 0), doubles(2, 3))
    assert box.log_prob(doubles([1, 1], [2, 3], [2.1, 1])).tolist() == pytest.approx([-math.log(6)] * 2 + [-math.inf])
    assert bool(box.log_prob(doubles([math.nan, 1])).isnan())
    assert box.log_volume == pytest.approx(math.log(6))
    x = box.sample(1000, generator=Generator().manual_seed(0))
    assert bool((x >= 0).all())
    assert bool((x <= doubles(2, 3)).all())
    assert float(x[:, 1].max()) > 2.9


def test_a_tilted_box_and_an_energy_alone():
    energy = lambda x, context=None: x[:, 0] ** 2  # noqa: E731
    x = doubles([1.0, 1.0], [2.0, 0.0])
    assert Tilted(UniformBox(doubles(0, 0), doubles(2, 3)), energy).log_score(x).tolist() == pytest.approx(
        [-math.log(6) - 1, -math.log(6) - 4]
    )
    assert Boltzmann(energy).log_score(x).tolist() == [-1, -4]


def test_a_grid_is_the_range_widened_by_half_of_its_half():
    grid = grid_around(doubles([-2, 0], [2, 4], [1, 1]), size=3)
    assert grid.low.tolist() == [-3, -1]
    assert grid.high.tolist() == [3, 5]
    assert grid.nodes().tolist() == [[-3, -1], [0, -1], [3, -1], [-3, 2], [0, 2], [3, 2], [-3, 5], [0, 5], [3, 5]]
    # Of a square of 6 × 6 the middle node has a whole cell of 3 × 3, those of the edges a half, the corners a quarter.
    assert grid.areas().tolist() == [2.25, 4.5, 2.25, 4.5, 9, 4.5, 2.25, 4.5, 2.25]
    points = doubles([0.1, 2.4], [1.6, 2.0], [-9, 9], [0, 0.6])
    assert grid.nearest(points).tolist() == [4, 5, 6, 4]
    assert histogram(grid, points).exp().tolist() == pytest.approx([0, 0, 0, 0, 0.5, 0.25, 0.25, 0, 0])


def test_divergences_on_a_grid():
    p, r = doubles(0.5, 0.25, 0.25, 0).log(), doubles(0.25, 0.25, 0.5, 0).log()
    assert grid_kl(p, r, epsilon=0.0) == pytest.approx(0.25 * math.log(2))
    assert grid_kl(p, p) == 0
    empty = doubles(1, 0, 0, 0).log()
    assert grid_kl(p, empty, epsilon=0.0) == math.inf
    assert grid_kl(empty, p, epsilon=0.0) == pytest.approx(math.log(2))
    # With ε = ¼, (½, ¼, ¼, 0) is (3, 2, 2, 1)/8 and (1, 0, 0, 0) is (5, 1, 1, 1)/8.
    wanted = (3 * math.log(3 / 5) + 4 * math.log(2)) / 8
    assert grid_kl(p, empty, epsilon=0.25) == pytest.approx(wanted)
    table = pairwise_kl({"data": p, "disc": r}, epsilon=0.0)
    assert table == pytest.approx({("data", "disc"): 0.25 * math.log(2), ("disc", "data"): 0.25 * math.log(2)})
    with pytest.raises(UserError, match="0 or more, not -1"):
        grid_kl(p, r, epsilon=-1.0)


def test_an_energy_is_divided_by_the_weight_of_the_entropy():
    energies = doubles(0, 0.5 * math.log(2), 0.5 * math.log(4))
    assert discriminator_on_grid(energies, entropy_weight=0.5).exp().tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    with pytest.raises(UserError, match="above 0, not 0"):
        discriminator_on_grid(energies, entropy_weight=0.0)


def test_energies_moments_and_log_z_on_a_grid():
    grid = Grid(doubles(0, 0), doubles(1, 2), 2)
    energies = energy_on_grid(lambda x, context=None: x.sum(1), grid)
    assert energies.tolist() == [0, 1, 2, 3]
    # All four nodes are corners, with a quarter of the area 2 each.
    assert grid_log_z(grid, energies) == pytest.approx(math.log(0.5 * sum(math.exp(-e) for e in range(4))))
    even = torch.full((4,), 0.25, dtype=torch.float64).log()
    features = [PointFeature("first", lambda x: x[:, 0]), PointFeature("upper", lambda x: x[:, 1] > 1, 0.0, 1.0)]
    assert grid_moments(grid, even, features).tolist() == [0.5, 0.5]
    single = GaussianMixture(doubles([0.0, 0.0]), 1.0).float()  # float32, whose own type the nodes are given in
    kernel = [math.exp(-e) for e in (0, 0.5, 2, 2.5)]
    assert density_on_grid(single, grid).exp().tolist() == pytest.approx([k / sum(kernel) for k in kernel], rel=1e-6)


def one_walker(x: float, target: object = None) -> tuple[Walkers[Tensor], Setting[Tensor]]:
    base = standard_normal(1).double()
    setting: Setting[Tensor] = Setting(base if target is None else target, base, None, Generator().manual_seed(3))  # type: ignore[arg-type]
    at = doubles([x])
    return walkers_at(setting, at, base.log_prob(at)), setting


def noise() -> float:
    return float(torch.randn((1, 1), dtype=torch.float64, generator=Generator().manual_seed(3)))


def test_a_langevin_step_of_a_gaussian():
    # ∇log P = −x: from 1 with s = 0.8 it goes to 1 − 0.32 + 0.8·ξ = y, and the way back drifts from y by −0.32·y.
    walkers, setting = one_walker(1.0)
    there, log_ratio = langevin(walkers, setting, 0.8)
    y = 0.68 + 0.8 * noise()
    assert float(there.x) == pytest.approx(y)
    forth, back = y - 0.68, 1 - 0.68 * y
    kernels = (forth**2 - back**2) / (2 * 0.64)
    assert float(log_ratio) == pytest.approx((1 - y**2) / 2 + kernels)  # log q(y)/q(1) besides
    assert float(there.log_q) == pytest.approx(-LOG_TWO_PI / 2 - y**2 / 2)


def test_a_step_of_a_random_walk_counts_the_base_only():
    walkers, setting = one_walker(1.0)
    there, log_ratio = random_walk(walkers, setting, 2.0)
    y = 1 + 2 * noise()
    assert float(there.x) == pytest.approx(y)
    assert float(log_ratio) == pytest.approx((1 - y**2) / 2)


def test_an_unadjusted_step_is_always_taken():
    walkers, setting = one_walker(1.0)
    there, log_ratio = unadjusted_langevin(walkers, setting, 5.0)
    assert float(there.x) == pytest.approx(1 - 12.5 + 5 * noise())
    assert float(log_ratio) == math.inf
    moved, accepted = step(walkers, PointMove("unadjusted_langevin", 5.0), setting._replace(generator=Generator()))
    assert bool(accepted)
    assert float(moved.x) != 1


def test_a_step_out_of_the_box_is_refused():
    box = UniformBox(doubles(0), doubles(1))
    setting: Setting[Tensor] = Setting(box, box, None, Generator().manual_seed(0))
    at = doubles([0.5])
    walkers = walkers_at(setting, at.repeat(200, 1), box.log_prob(at).repeat(200))
    moved, accepted = step(walkers, PointMove("random_walk", 1.0), setting)
    inside = torch.distributions.Normal(0, 1).cdf(torch.tensor(0.5)) * 2 - 1
    # 200 proposals of which 38 % fall inside, and all of these are taken: 5 standard deviations, one in 1.7 million.
    assert float(accepted.double().mean()) == pytest.approx(float(inside), abs=5 * math.sqrt(0.38 * 0.62 / 200))
    assert bool((moved.x[~accepted] == 0.5).all())


def test_a_step_size_tends_to_the_share_that_should_be_accepted():
    move = PointMove("random_walk", None)
    walkers, setting = one_walker(0.0)
    wide = walkers.select(torch.zeros(2, dtype=torch.long))._replace(x=doubles([-3.0], [3.0]))
    move(wide, setting)
    assert move.step_size == 3.0  # the spread of the walkers
    move.adapt(1.0)
    assert move.step_size == pytest.approx(3 * math.exp(3 * 0.65))
    move.adapt(0.35)
    assert move.step_size == pytest.approx(3 * math.exp(3 * 0.65))
    given = PointMove("langevin", 0.5)
    given.adapt(0.0)
    assert given.step_size == 0.5


def test_draws_of_points_are_selected_and_joined_row_by_row():
    x = torch.arange(12, dtype=torch.float64).view(6, 2)  # two rows of context, three draws each
    drawn = Weighted(x, torch.arange(6, dtype=torch.float64).view(2, 3))
    some = drawn.select(slice(2))
    assert some.x[:, 0].tolist() == [0, 2, 6, 8]
    assert some.log_weights.tolist() == [[0, 1], [3, 4]]
    both = Weighted.join([some, drawn.select(torch.tensor([2]))])
    assert torch.equal(both.x, drawn.x)
    assert torch.equal(both.log_weights, drawn.log_weights)
    images = Weighted(torch.zeros(6, 1, 4, 4), drawn.log_weights)
    assert Weighted.join([images, images]).x.shape == (12, 1, 4, 4)


def test_draws_for_several_contexts_are_context_major():
    context = Context(Sequences(torch.zeros(3, 1, dtype=torch.long), torch.ones(3, dtype=torch.long)))
    assert four_gaussians().sample(5, context, generator=Generator()).shape == (15, 2)
    assert UniformBox(torch.zeros(2), torch.ones(2)).sample(5, context, generator=Generator()).shape == (15, 2)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: four_gaussians().log_prob(torch.zeros(5, 3)), r"shape \[rows, 2\], not \[5, 3\]"),
        (lambda: four_gaussians().log_prob(torch.zeros(2)), r"shape \[rows, 2\], not \[2\]"),
        (lambda: GaussianMixture(torch.zeros(2, 2), 0.0), "variances of a mixture must be above 0"),
        (lambda: GaussianMixture(torch.zeros(2, 2), 1.0, torch.ones(3)), "2 components needs as many weights, not 3"),
        (lambda: UniformBox(torch.ones(2), torch.ones(2)), "`low` below its corner `high`"),
        (lambda: grid_around(torch.zeros(4, 2)), "more than one place along each axis"),
        (lambda: grid_around(torch.tensor([[0.0, math.nan]])), "all of them finite"),
        (lambda: histogram(Grid(doubles(0, 0), doubles(1, 1)), torch.zeros(0, 2)), "one or more points"),
        (lambda: PointMove("random_walk", 0.0), "a length above 0, not 0.0"),
        (lambda: PointMove("unadjusted_langevin", None), "give step_size, or use langevin"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(make, sentence):
    with pytest.raises(UserError, match=sentence) as error:
        make()
    assert str(error.value).count(".") - str(error.value).count("0.") <= 2


def test_features_of_the_same_points_have_a_gradient_each_time_they_are_asked_for():
    energy = Linear(Features([PointFeature("squared radius", lambda x: x.square().sum(1))]), torch.tensor([-0.5]))
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True)
    with torch.no_grad():
        energy(x)
    for _ in range(2):
        assert torch.equal(torch.autograd.grad(energy(x).sum(), x)[0], x)  # E = ½‖x‖²
