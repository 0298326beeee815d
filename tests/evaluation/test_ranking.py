import math

import pytest
import torch
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.evaluation.ranking import Ranking, distance_to_mean, rank_by_energy, rank_correlation, share_of
from ebar.types import Context


def energy(x: Tensor, context: Context | None = None) -> Tensor:
    """The first coordinate: lower is likelier."""
    return x[:, 0]


def test_the_lowest_energy_comes_first_and_of_equal_ones_the_earlier_row():
    ranking = rank_by_energy(energy, torch.tensor([[2.0, 0.0], [-1.0, 5.0], [7.0, 1.0], [-1.0, 0.0]]))
    assert ranking.order.tolist() == [1, 3, 0, 2]
    assert ranking.energies.tolist() == [2.0, -1.0, 7.0, -1.0]
    assert ranking.first(2).tolist() == [1, 3]
    assert ranking.last(1).tolist() == [2]
    assert ranking.last(9).tolist() == [1, 3, 0, 2]


def test_many_rows_are_ranked_as_one(monkeypatch):
    monkeypatch.setattr("ebar.evaluation.ranking.AT_ONCE", 2)
    assert rank_by_energy(energy, torch.tensor([[3.0], [1.0], [2.0], [0.0], [5.0]])).order.tolist() == [3, 1, 2, 0, 4]


def test_a_network_is_asked_in_evaluation_mode_and_without_a_gradient():
    network = nn.Sequential(nn.Dropout(0.9), nn.Linear(2, 1), nn.Flatten(0))
    x = torch.ones(50, 2)
    ranking = rank_by_energy(lambda rows, context=None: network(rows), x)
    assert not ranking.energies.requires_grad
    assert len(ranking.energies.unique()) == 1
    assert network.training


def test_the_distance_is_over_all_pixels():
    images = torch.zeros(2, 1, 2, 2)
    images[1, 0, 0, 0], images[1, 0, 1, 1] = 3.0, 4.0
    assert distance_to_mean(images, torch.zeros(1, 2, 2)).tolist() == [0.0, 5.0]


def test_energies_that_grow_with_the_distance_correlate_and_the_sign_counts():
    energies = torch.tensor([0.1, 0.2, 0.5, 0.4, 3.0]).double()
    distances = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    # Ranks 1 2 4 3 5 against 1 2 3 4 5: 1 − 6·(1 + 1)/(5·24) = 0.9.
    found = rank_correlation(Ranking(energies.argsort(), energies), distances)
    assert math.isclose(found.value, 0.9)
    assert found.low < 0.9 < found.high < 1
    turned = rank_correlation(Ranking((-energies).argsort(), -energies), distances)
    assert math.isclose(turned.value, -0.9)


def test_only_some_rows_are_correlated():
    energies, distances = torch.tensor([9.0, 0.0, 1.0, 2.0, 3.0]).double(), torch.tensor([0.0, 1.0, 2.0, 4.0, 3.0])
    real = torch.tensor([False, True, True, True, True])
    assert math.isclose(rank_correlation(Ranking(energies.argsort(), energies), distances, of=real).value, 0.8)


def test_the_share_of_real_rows_at_both_ends():
    energies = torch.tensor([4.0, 3.0, 2.0, 1.0]).double()
    real = torch.tensor([True, False, False, False])
    assert share_of(Ranking(energies.argsort(), energies), real, count=2) == (0.0, 0.5)


def test_what_cannot_be_ranked_is_said():
    with pytest.raises(UserError, match="nothing to rank"):
        rank_by_energy(energy, torch.zeros(0, 2))
    with pytest.raises(UserError, match="row 1 is not a number"):
        rank_by_energy(energy, torch.tensor([[1.0], [math.nan]]))
