from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebar.energies.discriminators import MlpDiscriminator
from ebar.models.classifiers import GaussianInference
from ebar.models.generators import MlpGenerator
from ebar.objectives.adversarial_costs import ConstantTerm, NeighbourEntropy, OriginalGan, VariationalEntropy
from ebar.objectives.energy_gan import EnergyGan, GapControl, HaltRule, Together, as_in_training, mean_distance
from ebar.training.loop import fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.types import Clock, Game


class Slope(nn.Module):
    """c(x) = w·x, or x = w·z: one number that is learnt."""

    latent, law, shape = 1, "normal", (1,)

    def __init__(self, weight: float, *, energy: bool):
        super().__init__()
        self.weight, self.energy = nn.Parameter(torch.tensor(weight)), energy

    def forward(self, x: Tensor) -> Tensor:
        found = self.weight * x
        return found[:, 0] if self.energy else found


class Repeated:
    """The same batch for ever."""

    def __init__(self, *batch: Tensor):
        self.batch = batch

    def at(self, epoch: int, start: int) -> list[Any]:
        return [self.batch] * (3 - start)


def players(game: EnergyGan, rate: float = 0.1) -> dict[str, Player]:
    moved = OPTIMISERS["sgd"](learning_rate=rate)
    modules = {"discriminator": game.energy, "generator": game.generator}
    modules |= {} if game.inference is None else {"inference": game.inference}
    learning = {name: Player(module=one, optimiser=moved.build(one.parameters())) for name, one in modules.items()}
    return {**learning, "memory": Player(module=game.memory)}


DATA, NOISE = torch.tensor([[2.0], [4.0]]), torch.tensor([[1.0], [3.0]])


def test_both_players_step_from_where_both_stood_by_hand(generator):
    """c = ½·x, x = 2·z: E_data[c] = 1½, E_gen[c] = 2. ∂/∂w_D = 3 − 4 = −1; ∂/∂w_G = ½·E[z] = 1."""
    game = EnergyGan(
        generator=Slope(2.0, energy=False), energy=Slope(0.5, energy=True), entropy=ConstantTerm(), control=Together()
    )
    assert isinstance(game, Game)
    step = next(fit(game, Repeated(DATA, NOISE), players(game), generator=generator))
    assert game.energy.weight.item() == pytest.approx(0.5 + 0.1)
    assert game.generator.weight.item() == pytest.approx(2.0 - 0.1)  # not − 0.1·0.6·2: the energy had not moved yet
    assert step.metrics["discriminator.loss"] == pytest.approx(-0.5)
    assert step.metrics["generator.loss"] == pytest.approx(2.0)
    assert game.memory.gap.item() == pytest.approx(-0.5)
    assert game.memory.spread.item() == pytest.approx(1.9 * 2 / 2)  # as it is after the step
    assert game.memory.largest_energy.item() == pytest.approx(0.6 * 1.9 * 3)


def test_an_entropy_pushes_samples_apart_by_its_weight(generator):
    """Two samples, each the other's neighbour, unit form: −∇ log p is ±1, mean over z of ∓1·z: +(3 − 1)/2·α for w_G."""
    weights = []
    for weight in (0.25, 0.5):
        entropy = NeighbourEntropy(weight=weight, neighbours=1, form="unit")
        game = EnergyGan(
            generator=Slope(2.0, energy=False), energy=Slope(0.0, energy=True), entropy=entropy, control=Together()
        )
        next(fit(game, Repeated(DATA, NOISE), players(game), generator=generator))
        weights.append(game.generator.weight.item())
    assert weights == pytest.approx([2 + 0.1 * 0.25 * 1, 2 + 0.1 * 0.5 * 1])


@pytest.mark.parametrize(
    ("gap", "epoch", "expected"),
    [(0.0, 5, (True, True)), (0.2, 5, (True, False)), (-0.3, 5, (False, True)), (0.1, 5, (False, True)),
     (-0.2, 5, (False, True)), (7.0, 1, (True, True)), (7.0, 2, (True, False))],
)  # fmt: skip
def test_who_moves_by_the_gap(gap, epoch, expected):
    """At a bound itself the generator alone moves, as in the public code."""
    assert GapControl(low=-0.2, high=0.1, together=2).movers(gap, Clock(0, epoch)) == expected
    assert Together().movers(gap, Clock(0, epoch)) == (True, True)


def test_the_gap_of_the_step_before_decides(generator):
    """The first gap is 1: the discriminator alone. Then −½, within the bounds: both. With a low bound of −¼: nobody
    but the generator."""
    for low, moved in ((-10.0, True), (-0.25, False)):
        game = EnergyGan(
            generator=Slope(2.0, energy=False), energy=Slope(0.5, energy=True), entropy=ConstantTerm(),
            control=GapControl(low=low),
        )  # fmt: skip
        first, second = islice(fit(game, Repeated(DATA, NOISE), players(game), generator=generator), 2)
        assert "generator.loss" not in first.metrics
        assert first.metrics["discriminator.gap"] == pytest.approx(-0.5)
        assert ("discriminator.loss" in second.metrics) is moved
        assert "generator.loss" in second.metrics
        assert game.memory.gap.item() == pytest.approx(-0.6)  # of whoever moved


@pytest.mark.parametrize(("data", "samples", "reason"), [(1e6, 1.0, "runs away"), (1.0, 1e6, "runs away")])
def test_energies_that_run_away_are_said(data, samples, reason, generator):
    game = EnergyGan(
        generator=Slope(1.0, energy=False), energy=Slope(0.5, energy=True), entropy=ConstantTerm(), control=Together()
    )
    step = next(fit(game, Repeated(data * DATA, samples * NOISE), players(game, 0.0), generator=generator))
    assert step.halt is not None
    assert reason in step.halt
    assert "1e+05" in step.halt


def told(game: EnergyGan, *spreads: float) -> list[str | None]:
    """What is said after steps that leave such spreads."""
    said = []
    for spread in spreads:
        game.memory.spread.fill_(spread)
        said.append(game.after_step({"generator.gap": 0.0}))
    return said


def test_a_collapse_is_said_once_samples_had_spread_or_the_grace_is_over():
    game = EnergyGan(generator=None, energy=None, halt=HaltRule(collapse=0.1, grace=3))
    *before, late = told(game, 0.01, 0.01, 0.01, 0.01)
    assert before == [None] * 3
    assert late is not None
    assert "collapsed" in late
    game = EnergyGan(generator=None, energy=None, halt=HaltRule(collapse=0.1, grace=99))
    *before, said = told(game, 0.01, 0.5, 0.01)
    assert before == [None] * 2
    assert said is not None
    assert "0.01 of that between data" in said
    never = EnergyGan(generator=None, energy=None, halt=HaltRule(collapse=0.0, grace=0))
    assert told(never, 0.0) == [None]


def test_an_energy_that_is_not_a_number_halts_too():
    game = EnergyGan(generator=None, energy=None)
    game.memory.largest_energy.fill_(torch.nan)
    (said,) = told(game, 1.0)
    assert said is not None
    assert "nan" in said


def test_looking_leaves_averages_and_modes_as_they_are(generator):
    """Batch normalisation as in training, dropout none: the same twice, and nothing is counted."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    x = torch.randn(9, 3, generator=generator)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    first, second = as_in_training(module, x), as_in_training(module, x)
    assert torch.equal(first, second)
    assert float(first.mean(0).abs().max()) < 1e-6
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module[2].training


def test_an_inference_network_moves_with_the_generator_and_pulls_it(generator):
    noise = torch.randn(8, 4, generator=generator)
    made = MlpGenerator(shape=(2,), deviation=0.1)
    inference = GaussianInference(MlpDiscriminator(shape=(2,), deviation=0.1), 4, deviation=0.1)
    before = [parameter.detach().clone() for parameter in inference.head.parameters()]
    game = EnergyGan(
        generator=made, energy=MlpDiscriminator(shape=(2,)), inference=inference, costs=OriginalGan(),
        entropy=VariationalEntropy(weight=0.3), control=Together(), smoothness=0.1,
    )  # fmt: skip
    wanted = -inference.log_prob(noise, made(noise)).mean()
    step = next(fit(game, Repeated(torch.randn(8, 2), noise), players(game), generator=generator))
    assert step.metrics["inference.loss"] == pytest.approx(wanted.item(), rel=1e-5)
    assert any(not torch.equal(*pair) for pair in zip(before, inference.head.parameters(), strict=True))
    adversarial = step.metrics["generator.loss"] - 0.3 * step.metrics["generator.entropy_term"]
    assert adversarial == pytest.approx(0.693, abs=0.05)  # softplus of energies near 0


def test_the_mean_distance_of_three_points_by_hand():
    assert mean_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])) == pytest.approx(10 / 3)
