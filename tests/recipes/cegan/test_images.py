"""What the recipes of images measure, on energies that are known."""

import base64
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebar.recipes.cegan.images import RANDOM, ranking, toy_images
from ebar.recipes.cegan.methods import CONST, GAN, NN, VI
from ebar.recipes.cegan.tables import DIGITS, FIGURE_B6, TABLE_B1, TABLE_B3
from ebar.recipes.claims import NOT_REPRODUCED, REPRODUCED, Claim
from ebar.recipes.recipe import several


class Distance(nn.Module):
    """E = sign·‖x‖: the distance to an empty image, or its opposite."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: Tensor, context: None = None) -> Tensor:
        found: Tensor = self.sign * x.flatten(1).norm(dim=1)
        return found


@pytest.mark.parametrize(("sign", "first"), [(1.0, "likeliest"), (-1.0, "unlikeliest")])
def test_an_energy_that_is_the_distance_ranks_like_it(sign, first):
    """Real images are darker than generated ones: they are at one end, and the correlation is ±1."""
    real = torch.rand(6, 1, 28, 28) * 0.1
    made = torch.rand(6, 1, 28, 28) * 0.1 + 0.8
    found = ranking(Distance(sign), real, made, torch.zeros(1, 28, 28), ends=6)
    assert found["correlation"]["all"]["value"] == pytest.approx(sign)
    assert found["correlation"]["real"]["value"] == pytest.approx(sign)
    assert found["real"][first] == 1.0
    assert found["distance"][first] < found["distance"]["all"]
    assert all(base64.b64decode(sheet).startswith(b"\x89PNG") for sheet in found["sheets"].values())


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3), (64, 3)])
def test_made_up_images_are_the_same_every_time_and_of_two_classes(size, channels):
    one, other = (toy_images(6, size=size, seed=0) for _ in range(2))
    assert one.images.shape == (6, channels, size, size)
    assert torch.equal(one.images, other.images)
    assert one.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert not torch.equal(one.images, toy_images(6, size=size, seed=1).images)


def test_the_authors_settings_at_scale_paper():
    digits = DIGITS.grid("paper")[0]
    assert digits["method"] == NN
    assert digits["digit"] == 1
    assert digits["configuration"]["entropy"] == {"kind": "neighbours", "weight": 4.0, "neighbours": 20, "form": "unit"}
    assert digits["configuration"]["control"] == {"kind": "gap", "low": -1.2, "high": 0.1, "together": 1}
    assert digits["configuration"]["training"]["generator_rate"] == 25.0
    assert {cell["set"] for cell in TABLE_B1.grid("paper")} == {"cifar-10", "svhn"}
    assert {cell["set"] for cell in TABLE_B3.grid("paper")} == {"mnist", "fashion-mnist"}
    assert {cell["set"] for cell in FIGURE_B6.grid("paper")} == {"cifar-10", "celeba"}
    assert all(cell["configuration"]["entropy"]["kind"] == "constant" for cell in TABLE_B1.grid("cpu")
               if cell["method"] == CONST)  # fmt: skip


def test_the_documents_test_errors_stand_beside_those_of_mnist():
    def probe(error: float) -> dict[str, Any]:
        own = {"value": error, "low": error / 2, "high": 2 * error, "effective_sample_size": 100.0}
        return {"probe": own, "halted": None}

    errors = {NN: 0.02, CONST: 0.03, GAN: 0.01, RANDOM: 0.05}
    rows = TABLE_B3.rows([(cell, probe(errors[cell["method"]])) for cell in TABLE_B3.grid("cpu")])
    found = {(row.name, row.settings["method"]): (row.value, row.document) for row in rows}
    assert found["test error, %", NN] == (2.0, 1.19)
    assert found["standard deviation over runs, %", NN] == (0.0, 0.024)
    assert found["least of the runs, %", NN] == (2.0, 1.16)
    assert found["test error, %", RANDOM] == (5.0, 3.409)
    assert found[f"test error, %, less that of {CONST}", NN] == (-1.0, -0.148)
    assert found[f"test error, %, less that of {RANDOM}", NN] == (-3.0, -2.219)
    assert (f"test error, %, less that of {CONST}", GAN) not in found
    verdicts = [claim(rows).verdict for claim in several(TABLE_B3.claims) if isinstance(claim, Claim)]
    assert verdicts == [REPRODUCED, NOT_REPRODUCED, REPRODUCED]  # seeds alike to the last bit: intervals of no width


def test_scores_of_samples_are_compared_seed_by_seed():
    scores = {VI: (3.0, 4.0, 5.0), CONST: (2.0, 3.0, 4.5), GAN: (1.0, 6.0, 2.0)}

    def scored(cell: Any) -> dict[str, Any]:
        known = {"value": 6.0, "low": 5.0, "high": 7.0, "effective_sample_size": 10.0}
        own = {"samples": {**known, "value": scores[cell["method"]][cell["seed"]]}, "test": known, "error": known}
        return {"score": own, "halted": None}

    rows = TABLE_B1.rows([(cell, scored(cell)) for cell in TABLE_B1.grid("cpu")])
    found = {row.name: row.value for row in rows if "less that of" in row.name}
    assert found == {
        f"classifier score of samples, less that of {CONST}": pytest.approx(2.5 / 3),
        f"classifier score of samples, less that of {GAN}": pytest.approx(1.0),
    }
