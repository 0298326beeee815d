"""Points along curves, few of them labelled."""

import pytest
import torch

from ebar.data.labelled_images import ManifoldData
from ebar.errors import UserError
from ebar.maths.manifolds import MANIFOLDS


def test_parts_are_of_the_sizes_asked_for_and_share_no_point() -> None:
    data = ManifoldData(manifold="two_circles", size=30, held_out=20).read(labels=6, seed=3)
    assert (data.shape, data.classes) == ((2,), 2)
    assert data.labels.bincount().tolist() == [3, 3]
    sizes = [len(part) for part in (data.labelled, data.unlabelled, data.validation, data.test)]
    assert sizes == [6, 30, 20, 20]
    rows = torch.cat([data.labelled, data.unlabelled, data.validation, data.test])
    assert len(rows.unique(dim=0)) == len(rows)
    nearest = MANIFOLDS["two_circles"]().distances(data.test).argmin(1)
    assert torch.equal(nearest, data.test_labels)


def test_the_seed_decides_all_of_it() -> None:
    one, same, other = (ManifoldData(size=9, held_out=9).read(labels=4, seed=seed) for seed in (0, 0, 1))
    for name in ("labelled", "unlabelled", "validation", "test"):
        assert torch.equal(getattr(one, name), getattr(same, name))
        assert not torch.equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("labels", [0, 3, 6])
def test_labels_are_shared_evenly(labels: int) -> None:
    with pytest.raises(UserError, match="cannot be shared evenly by 4 classes"):
        ManifoldData().read(labels=labels)


def test_an_unknown_manifold_is_told() -> None:
    with pytest.raises(UserError, match="two_circles"):
        ManifoldData(manifold="moons").read(labels=4)
