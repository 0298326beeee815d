"""Energies of data, of q's draws and of the joint model's."""

import math

import pytest
import torch

from ebar.errors import UserError
from ebar.evaluation.energy_distributions import energy_distributions
from tests.estimators.residual import conditions, residual


def test_by_hand():
    # Draws of one prefix have weights 2 and 1, of the other 1 and 1; so the joint model's are ⅓, ⅙, ¼ and ¼.
    data = torch.tensor([0.0, 1.0])
    draws = torch.tensor([[-math.log(2), 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = energy_distributions(data, draws, bins=2)
    assert found.edges == pytest.approx((-math.log(2), (1 - math.log(2)) / 2, 1.0))
    assert found.data.shares == pytest.approx((0.5, 0.5))
    assert found.base.shares == pytest.approx((0.5, 0.5))
    assert found.joint.shares == pytest.approx((1 / 2, 1 / 2))
    assert found.base.mean.value == pytest.approx((2 - math.log(2)) / 4)
    assert found.joint.mean.value == pytest.approx(-math.log(2) / 3 + 1 / 2)
    assert found.joint_gap.value == pytest.approx(-math.log(2) / 3)
    assert found.base_gap.value == pytest.approx(-math.log(2) / 4)
    assert found.data.quantiles == (0.0, 0.0, 0.0, 1.0, 1.0)
    assert found.joint.quantiles == pytest.approx((-math.log(2), -math.log(2), 0.0, 1.0, 1.0))
    assert found.data.deviation == pytest.approx(0.5)


def test_the_weighted_draws_have_the_joint_models_mean(generator):
    small = residual()
    context = conditions(torch.arange(3))
    energies = small.energy(small.q.sample(4000, context, generator=generator), context).view(3, 4000)
    law = torch.softmax(small.log_q() - small.energies(), -1)
    truth = float((law * small.energies()).sum(1).mean())
    base = float((small.log_q().exp() * small.energies()).sum(1).mean())
    found = energy_distributions(torch.zeros(3), energies)
    assert found.joint.mean.value == pytest.approx(truth, abs=0.08)  # 3 of its standard errors, 1.3·√(e/12,000)
    assert found.base.mean.value == pytest.approx(base, abs=0.04)
    assert truth < base - 0.3
    assert sum(found.joint.shares) == pytest.approx(1.0)


def test_what_cannot_be_compared():
    with pytest.raises(UserError, match="not a finite number"):
        energy_distributions(torch.tensor([math.inf]), torch.zeros(1, 3))
    with pytest.raises(UserError, match="at least one prefix"):
        energy_distributions(torch.zeros(0), torch.zeros(0, 3))
