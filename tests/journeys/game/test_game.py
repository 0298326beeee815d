"""Games played from end to end: what they leave, how they are halted, opened, refused."""

import math

import pytest
import torch
from torch import Generator

import ebar
from ebar.data.images import Images
from ebar.data.points import PointsData
from ebar.errors import UserError
from ebar.evaluation.grid import energy_on_grid, grid_around, grid_log_z
from ebar.journeys.game.data import Pictures, game_data
from ebar.journeys.game.journey import GameTraining, Played, game
from ebar.models.generators import MlpGenerator
from ebar.objectives.adversarial_costs import EnergyGap
from ebar.objectives.energy_gan import HaltRule, Together
from ebar.objectives.entropy_terms import ConstantTerm, NeighbourEntropy, VariationalEntropy
from ebar.training.optimisers import Adam, Constant
from ebar.training.run import Run
from tests.journeys.game.killed import POINTS, run_game
from tests.training.tiny import kept

QUICK_SMALL = GameTraining(epochs=4, batch_size=25, log_every=1)


@pytest.fixture(scope="module")
def played() -> Played:
    """Two Gaussians, nine of ten points in the one on the left, for 240 steps."""
    generator = Generator().manual_seed(0)
    left = torch.rand(6000, 1, generator=generator) < 0.9
    points = torch.randn(6000, 2, generator=generator) + torch.where(left, -2.0, 2.0)
    return game(
        {"train": points[:5000], "test": points[5000:]},
        entropy=NeighbourEntropy(weight=1.0, neighbours=25), costs=EnergyGap(margin=10.0), control=Together(),
        training=GameTraining(epochs=12, batch_size=250, generator_rate=5.0, log_every=20),
        optimiser=Adam(learning_rate=2e-3, betas=(0.0, 0.999)), schedule=Constant(), seed=1,
    )  # fmt: skip


def test_a_game_learns_where_data_are_and_how_likely_each_mode_is(played):
    """True energies: the left mode is log 9 = 2.2 below the right one, the corners far above both."""
    assert played.result is not None
    assert played.result.status == "finished"
    energies = played.calibrated(torch.tensor([[-2.0, -2.0], [2.0, 2.0], [-2.0, 4.0]])).detach().tolist()
    assert energies[1] - energies[0] > 0.5
    assert energies[2] - energies[1] > 0.5
    drawn = played.sample(2000, generator=Generator().manual_seed(0))
    assert float(drawn.mean()) == pytest.approx(-1.6, abs=0.8)
    assert 0.5 < played.curve("spread")[-1][1] < 2
    assert not played.generator.training


def test_ranking_puts_the_likeliest_first(played):
    ranking = played.rank()
    assert len(ranking.order) == 1000
    energies = ranking.energies[ranking.order]
    assert bool((energies[1:] >= energies[:-1]).all())
    centre = torch.tensor([-2.0, -2.0])
    distances = (played.data.rows("test") - centre).norm(dim=1)
    assert float(distances[ranking.first(100)].mean()) < float(distances[ranking.last(100)].mean())


def test_log_z_of_the_energy_is_that_of_the_grid(played):
    """A 99.9 % interval is asked for; the trapezoidal rule on 200 × 200 nodes is within a thousandth."""
    grid = grid_around(played.data.rows(), size=200)
    found = played.log_z(low=grid.low, high=grid.high, draws=20_000, generator=Generator().manual_seed(0))
    exact = grid_log_z(grid, energy_on_grid(played.calibrated, grid))
    assert found.value == pytest.approx(exact, abs=3.3 / 1.96 * (found.high - found.low) / 2 + 1e-3)
    assert found.high - found.low < 0.5
    default = played.log_z(generator=Generator().manual_seed(0))  # the same rectangle: a quarter of the range outwards
    assert default.value == pytest.approx(found.value, abs=1e-3)


def test_the_page_shows_contours_samples_and_curves(played, tmp_path):
    text = played.report(tmp_path / "page.html").read_text()
    assert "Energy and samples" in text
    assert "energy / α" not in text.split("<svg")[0]
    assert text.count("<svg") == 2
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_a_game_that_is_halted_keeps_the_last_good_weights_and_warns(tmp_path):
    """The energies are let run, and stopped at the first beyond 0.4: steps before it are kept, those after are not."""
    options = {
        "entropy": ConstantTerm(), "control": Together(), "halt": HaltRule(largest_energy=0.4), "seed": 1,
        "training": GameTraining(epochs=30, batch_size=25, checkpoint_every=1, log_every=1), "folder": tmp_path,
        "optimiser": Adam(learning_rate=0.003),
    }  # fmt: skip
    with pytest.warns(UserWarning, match=r"the game was halted in step \d+: An energy has grown to"):
        found = game(POINTS, **options)
    assert found.result is not None
    assert found.result.status == "halted"
    newest = Run(tmp_path).checkpoints.newest()
    assert newest is not None
    assert newest.step == found.result.position.step - 1 > 1
    for name, value in found.energy.state_dict().items():
        assert torch.equal(newest.weights["discriminator"][name], value)
    assert 0.2 < float(newest.weights["memory"]["largest_energy"]) <= 0.4  # measured as it is, not as it was before
    assert "Halted" in found.report(tmp_path / "page.html").read_text()
    with pytest.warns(UserWarning, match="halted"):  # the same call goes on from there, and halts again
        again = game(POINTS, **options)
    assert again.result == found.result


def test_a_collapse_halts_a_game(tmp_path):
    """A generator that makes one point: within the grace nothing, then it is said."""
    with pytest.warns(UserWarning, match="collapsed; give the entropy more weight"):
        found = game(
            POINTS, generator=MlpGenerator(shape=(2,), layers=0, deviation=1e-9), entropy=ConstantTerm(), seed=0,
            halt=HaltRule(grace=3), training=QUICK_SMALL, optimiser=Adam(learning_rate=1e-12),
        )  # fmt: skip
    assert found.result is not None
    assert found.result.position.step == 4


def test_a_game_goes_on_where_it_was_stopped_and_reads_back_what_is_finished(tmp_path):
    run_game(tmp_path / "whole", steps=20)
    run_game(tmp_path / "halves", steps=10)
    with pytest.raises(UserError, match=r"training\.epochs"):  # another description: say so
        run_game(tmp_path / "halves", steps=20)
    again = run_game(tmp_path / "whole", steps=20)
    assert len(again.history) == 20
    moved = [{name.partition(".")[0] for name in line if name.endswith(".loss")} for line in again.history]
    assert {"discriminator", "generator", "inference"} in moved
    assert any(who != moved[0] for who in moved)  # the gap decides: not all move in every step
    assert any(path.endswith("memory.safetensors") for path in kept(tmp_path / "whole"))


def test_images_of_bytes_become_numbers_and_a_sheet(tmp_path):
    pixels = torch.randint(256, (60, 8, 8, 1), generator=Generator().manual_seed(0), dtype=torch.uint8)
    rows = game_data({"train": Images(pixels), "test": Images(pixels[:20])})
    assert isinstance(rows.parts["train"], Pictures)
    assert rows.shape == (1, 8, 8)
    assert float(rows.rows("test").max()) == pytest.approx(int(pixels[:20].max()) / 255)
    found = game(rows, entropy=NeighbourEntropy(neighbours=5, form="unit"), training=GameTraining(
        epochs=1, batch_size=20), seed=0)  # fmt: skip
    assert found.sample(3).shape == (3, 1, 8, 8)
    text = found.report(tmp_path / "page.html").read_text()
    assert text.count("data:image/png") == 3
    with pytest.raises(UserError, match="Only points have a box"):
        found.log_z()


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (torch.zeros(5, 3, 2), {}, "images of shape"),
        (torch.zeros(5, 2).long(), {}, "floating-point"),
        (torch.full((5, 2), math.nan), {}, "not a number"),
        ("text", {}, "points or images"),
        (torch.randn(5, 2), {}, "5 rows, fewer than a batch of 500"),
        (POINTS, {"training": GameTraining(batch_size=20)}, "20 neighbours are wanted and a sample has 19 others"),
        (torch.rand(50, 1, 9, 9), {"generator": MlpGenerator(shape=(1, 8, 8))}, "rows of 1 × 8 × 8 and the data"),
        (POINTS, {"energy": ebar.MlpDiscriminator(shape=(3,)), "training": QUICK_SMALL}, "must have shape"),
        (POINTS, {"inference": torch.nn.Linear(2, 2)}, "Only a variational entropy has an inference network"),
        (POINTS, {"generator": torch.nn.Linear(2, 2)}, "must have `latent`"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_sentence(data, options, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        game(data, seed=0, **options)
    assert str(caught.value).count(". ") == 0


def test_points_that_were_read_say_where_they_come_from():
    rows = game_data(PointsData(mixture="biased_gaussians", size=1000).read())
    assert rows.mixture == "biased_gaussians"
    assert rows.origin is not None
    assert rows.origin["kind"] == "points"
    assert rows.held_out == "test"
    assert game_data(POINTS).held_out == "train"


def test_a_variational_game_has_an_inference_network_of_its_own():
    found = game(POINTS, entropy=VariationalEntropy(bound=2.0), training=QUICK_SMALL, seed=0)
    assert found.inference is not None
    assert found.inference.bound == 2.0
    assert found.history.curve("inference.loss")
