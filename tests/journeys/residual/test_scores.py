"""Energies of draws, on disk."""

import pytest
import torch
from torch import nn

from ebar.errors import UserError
from ebar.journeys.residual.negatives import draw_negatives, energies_of
from ebar.models.ngram import Tabular
from ebar.types import Context, Sequences, Space

SPACE = Space(3, 3, 2)


class Weighing(nn.Module):
    """A cost of each place, and of the context."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor, dtype=torch.float64))
        self.calls = 0

    def forward(self, x, context=None):
        self.calls += 1
        each = context.given.tokens[:, 0].repeat_interleave(len(x.lengths) // context.rows)
        inside = torch.where(x.mask(), x.tokens, 0)
        return self.factor * ((inside * torch.arange(1, x.tokens.shape[1] + 1)).sum(1) + 10 * each)


@pytest.fixture
def scene(generator, tmp_path):
    q = Tabular.random(SPACE, conditions=3, generator=generator)
    context = Context(Sequences(torch.tensor([[0], [1], [2], [1]]), torch.ones(4, dtype=torch.long)))
    return context, draw_negatives(tmp_path / "draws", q, context, 5, seed=1, at_once=4)


def test_each_draw_has_its_own_energy_in_its_own_place(scene, tmp_path):
    context, pool = scene
    energy = Weighing(0.5)
    found = energies_of(tmp_path / "energies", energy, pool, context)
    assert found.shape == (4, 5)
    for row in range(4):
        x = pool.fetch(torch.tensor([row]))
        expected = energy(x, context.select(torch.tensor([row])))
        assert found[row].tolist() == expected.tolist()


def test_what_is_on_disk_is_not_computed_again(scene, tmp_path):
    context, pool = scene
    first = energies_of(tmp_path / "energies", Weighing(0.5), pool, context)
    parts = sorted((tmp_path / "energies").glob("part-*"))
    parts[3].unlink()
    again = Weighing(0.5)
    assert energies_of(tmp_path / "energies", again, pool, context).tolist() == first.tolist()
    assert again.calls == 1
    with pytest.raises(UserError, match=r"made from something else \(what differs: energy\."):
        energies_of(tmp_path / "energies", Weighing(0.6), pool, context)
    parts[0].write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"is damaged \(.*\): delete it, and run"):
        energies_of(tmp_path / "energies", Weighing(0.5), pool, context)
