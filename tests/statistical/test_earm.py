"""Fakes against the exact chances, and E-ARM's gradient in training against the exact one."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.maths.enumeration import all_sequences
from ebar.models.drawing import draw_fakes
from ebar.objectives import Earm, MaximumLikelihood
from ebar.types import Clock, Sequences, Space
from tests.exact.test_earm import data_of, exact_gradients, gradient, recurrent

DRAWS = 40_000


def codes(x: Sequences, cap: int) -> Tensor:
    """A number for what is left of each sequence, cut off after `cap` tokens, with 3 for no token."""
    tokens = torch.where(Sequences(x.tokens, x.lengths.clamp(max=cap)).mask(), x.tokens, 3)
    tokens = torch.nn.functional.pad(tokens, (0, 4 - tokens.shape[1]), value=3)
    return (tokens * torch.tensor([64, 16, 4, 1])).sum(1)


@pytest.mark.parametrize("space", [Space(3, 3), Space(3, 4, end=2)], ids=["fixed", "ending"])
@pytest.mark.parametrize("cap", [2, 9])
def test_fakes_cut_off_or_not_have_the_models_chances(space, cap):
    """χ² of the counts of what is left of each sequence; false alarms: 1e-4."""
    from scipy.stats import chi2

    model, x = recurrent(space), all_sequences(space)
    with torch.no_grad():
        expected = DRAWS * torch.bincount(codes(x, cap), model.log_prob(x).exp(), minlength=256)
    fakes = draw_fakes(model, torch.full((DRAWS,), cap), generator=Generator().manual_seed(8))
    found = torch.bincount(codes(fakes, cap), minlength=256)
    assert int(found[expected == 0].sum()) == 0
    often = expected >= 5
    assert float(expected[~often].sum()) < 100
    statistic = float(((found - expected).square() / expected)[often].sum())
    assert statistic < chi2.isf(1e-4, int(often.sum()) - 1)


@pytest.mark.parametrize("space", [Space(2, 3), Space(3, 3, end=2)], ids=["fixed", "ending"])
def test_the_gradient_of_a_large_batch_is_the_exact_one(space):
    """20 batches of 4,000: the mean within 5 standard errors of the exact gradient in every direction of the
    parameters (false alarms: 6e-7 each), the bias of such batches being far below their error."""
    model, x = recurrent(space), all_sequences(space)
    chances = data_of(space)
    generator = Generator().manual_seed(4)
    found = []
    for _ in range(20):
        rows = torch.multinomial(chances, 4000, replacement=True, generator=generator)
        batch = x.select(rows)
        losses = []
        for objective in (Earm(model=model, weight=1.0, steps="sum"), MaximumLikelihood(model=model)):
            (loss,) = objective.losses(batch, Clock(0, 0), generator=generator)
            losses.append(loss.value)
        found.append(gradient(model, losses[0] - losses[1]))
    each = torch.stack(found)
    error = each.std(0) / math.sqrt(len(each))
    exact = exact_gradients(space, 2)[-1]
    assert bool(((each.mean(0) - exact).abs() < 5 * error + 1e-9).all())
    assert float(error.norm()) < 0.1 * float(exact.norm())
