"""What the recipes of images measure, on energies that are known."""

import base64

import pytest
import torch
from torch import Tensor, nn

from ebar.recipes.cegan.images import ranking, toy_images
from ebar.recipes.cegan.methods import CONST, NN
from ebar.recipes.cegan.tables import DIGITS, FIGURE_B6, TABLE_B1, TABLE_B3


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
    probe = {"probe": {"value": 0.02, "low": 0.01, "high": 0.03, "effective_sample_size": 100.0}, "halted": None}
    cells = [cell for cell in TABLE_B3.grid("cpu") if cell["method"] == NN]
    rows = TABLE_B3.rows([(cell, probe) for cell in cells])
    assert [(row.name, row.value, row.document) for row in rows] == [
        ("test error, %", 2.0, 1.19), ("standard deviation over runs, %", 0.0, 0.024),
        ("least of the runs, %", 2.0, 1.16),
    ]  # fmt: skip
