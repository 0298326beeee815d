"""Figures of a classifier with few labels, by hand."""

import pytest
import torch
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.few_labels import density_centile, fake_share, true_share
from ebar.maths.proportions import wilson

LOGITS = torch.tensor([[-1.0, 2.0], [-1.0, -2.0], [0.0, -3.0], [-5.0, 0.1]])


def test_shares_count_the_largest_logit() -> None:
    """Above 0 in rows 0 and 3, below 0 in row 1; the 0 of row 2 is neither."""
    assert true_share(LOGITS).value == 0.5
    assert fake_share(LOGITS).value == 0.25
    found = fake_share(LOGITS)
    assert (found.low, found.high) == wilson(1.0, 4.0)
    with pytest.raises(UserError, match="no examples"):
        true_share(LOGITS[:0])


def test_a_centile_of_densities_is_linear_between_examples_and_bytes_are_read_as_shares_of_255() -> None:
    def log_density(x: Tensor) -> Tensor:
        return x.flatten(1).sum(1)

    images = torch.tensor([0, 51, 102, 255], dtype=torch.uint8).view(4, 1, 1, 1)  # 0, 0.2, 0.4, 1
    assert density_centile(log_density, images, 0.0) == 0.0
    assert density_centile(log_density, images, 50.0, rows=3) == pytest.approx(0.3)
    assert density_centile(log_density, images, 100.0) == 1.0
    with pytest.raises(UserError, match="no image"):
        density_centile(log_density, images[:0], 10.0)
