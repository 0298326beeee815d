"""What the tables of mixtures measure, on a game whose energy is known, and where the document's numbers stand."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.data.points import PointsData
from ebar.journeys.game.data import game_data
from ebar.journeys.game.journey import Played
from ebar.models.generators import MlpGenerator
from ebar.models.points import mixture
from ebar.recipes.cegan.methods import CONST, GAN, METHODS, NN, VI
from ebar.recipes.cegan.mixtures import BIASED, FOUR, NAMES, SPIRALS, measured
from ebar.recipes.cegan.points import APART, FIGURES_B2_B3, HELD, LESS, MINOR, TABLE_B2
from ebar.store.writing import to_json
from ebar.training.train import History

ALPHA = 0.5


class TrueEnergy(nn.Module):
    """c = −α·log p + constant: what the game tends to."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.mixture = mixture(name)
        self.shift = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor, context: None = None) -> Tensor:
        return self.shift - ALPHA * self.mixture.log_prob(x)


def optimum(name: str) -> dict[str, Any]:
    """What is measured where the energy is right, as it stands in a record."""
    data = game_data(PointsData(mixture=NAMES[name], size=2000).read())
    game = Played(
        generator=MlpGenerator(shape=(2,), hidden=4), energy=TrueEnergy(NAMES[name]), inference=None, data=data,
        weight=ALPHA, history=History([]),
    )  # fmt: skip
    how = {"samples": 500, "draws": 4000, "shown": 5}
    found = measured(game, {"mixture": name, "measures": how}, Generator().manual_seed(0))
    result: dict[str, Any] = json.loads(to_json({**found, "steps": 1, "halted": None}))
    return result


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return {name: optimum(name) for name in NAMES}


def test_an_energy_of_minus_alpha_log_p_is_at_no_distance_from_the_data(found):
    for own in found.values():
        assert own["kl"]["data‖disc"] == pytest.approx(0.0, abs=1e-6)
        assert own["kl"]["disc‖data"] == pytest.approx(0.0, abs=1e-6)
        assert own["kl"]["data‖disc, e^−c"] > 0.02  # without α it is another distribution


def test_log_z_is_that_of_the_constant(found):
    """exp(−c/α) = p·e^(−3/0.5): its integral over a rectangle that holds nearly all of p is e⁻⁶."""
    for own in found.values():
        assert own["log_z"]["grid"] == pytest.approx(-6.0, abs=0.02)
        # One draw of the samples, once and for all.
        assert own["log_z"]["apart"]["low"] <= 0 <= own["log_z"]["apart"]["high"]
        assert own["log_z"]["held"] == 1.0


def test_the_modes_of_the_biased_mixture_are_log_9_apart(found):
    assert found[BIASED]["modes"] == pytest.approx(math.log(9), abs=0.05)
    assert found[FOUR]["modes"] is None


def test_the_spirals_have_both_densities(found):
    assert found[SPIRALS]["kl"]["data, variance 1‖disc"] > 0.1
    assert "data, variance 1‖disc" not in found[FOUR]["kl"]


def test_the_documents_figures_stand_beside_those_of_e_to_the_minus_c(found):
    results = [
        ({"mixture": name, "method": method, "seed": 0, "measures": {"draws": 1}}, own)
        for name, own in found.items()
        for method in METHODS
    ]
    told = {(row.name, row.settings.get("mixture"), row.settings.get("method")): row for row in TABLE_B2.rows(results)}
    assert told["KL(data‖disc, e^−c)", FOUR, NN].document == 0.1187
    assert told["KL(data‖disc)", FOUR, NN].document is None
    assert told["KL(disc, e^−c‖data)", BIASED, VI].document == 2.9894
    assert told["KL(gen‖emp)", BIASED, CONST].document == 0.1545
    assert told["KL(data, variance 1‖disc, e^−c)", SPIRALS, NN].document == 0.7917
    assert told["KL(data‖disc, e^−c)", SPIRALS, NN].document is None
    assert told["KL(gen‖disc, e^−c)", SPIRALS, GAN].document == 1.6519
    assert told["KL(data, variance 1‖emp)", SPIRALS, None].document == 0.3892
    assert told["KL(emp‖data)", FOUR, None].document == 0.0159
    assert told[LESS, FOUR, NN].value == 0.0  # the same energy, here
    assert (LESS, FOUR, VI) not in told
    assert told[HELD, FOUR, NN].value == 1.0
    assert told[MINOR, BIASED, NN].value == pytest.approx(math.log(9), abs=0.05)
    assert (MINOR, FOUR, NN) not in told
    assert (APART, SPIRALS, GAN) in told


def test_only_the_options_of_a_methods_own_terms_are_in_its_configuration():
    cells = {(cell["mixture"], cell["method"]): cell["configuration"] for cell in TABLE_B2.grid("paper")}
    assert cells[FOUR, NN]["entropy"] == {"kind": "neighbours", "weight": 0.5}
    assert cells[BIASED, NN]["entropy"]["weight"] == 0.15
    assert cells[BIASED, NN]["control"] == {"kind": "gap", "low": -0.2}
    assert cells[BIASED, NN]["costs"] == {"kind": "energy", "margin": 10.0}
    assert cells[SPIRALS, VI]["entropy"] == {"kind": "variational", "weight": 0.25}
    assert cells[FOUR, CONST]["entropy"] == {"kind": "constant", "weight": 0.0}
    assert cells[BIASED, GAN]["costs"] == {"kind": "gan"}
    assert cells[BIASED, GAN]["control"] == {"kind": "together"}


def test_the_figures_are_read_off_the_tables_runs(found, tmp_path):
    assert FIGURES_B2_B3.runs == TABLE_B2.runs
    assert FIGURES_B2_B3.grid("cpu") == [cell for cell in TABLE_B2.grid("cpu") if cell["seed"] == 0]
    rows = FIGURES_B2_B3.rows([({"mixture": name, "method": NN, "seed": 0}, own) for name, own in found.items()])
    FIGURES_B2_B3.plot(rows, tmp_path / "fields.svg")
    assert (tmp_path / "fields.svg").read_text().startswith("<?xml")
