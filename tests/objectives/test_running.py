"""What is kept from step to step, by hand: squares of weights, and a baseline that has not seen the draws."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.objectives import Earm, PolicyGradient
from ebar.objectives.conditional_moments import ConditionalMoments
from ebar.objectives.contrastive import Contrast
from ebar.objectives.langevin import langevin
from ebar.objectives.policy_gradient import WeightedSums
from ebar.types import Clock, Context, Sequences, Space
from tests.models.examples import ENDING, FIXED, lstm

SPACE = Space(2, 3)


def test_squares_shrink_by_the_square_when_the_largest_weight_rises():
    """Weights 1, then 2: (1 + 2)²/(1 + 4) = 9/5. Then 4: (1 + 2 + 4)²/(1 + 4 + 16) = 49/21."""
    sums = WeightedSums(1)
    for weight, size in ((1.0, 1.0), (2.0, 9 / 5), (4.0, 49 / 21)):
        sums.add(torch.tensor([math.log(weight)], dtype=torch.float64), torch.tensor([[weight]], dtype=torch.float64))
        assert float(sums.effective_sample_size()) == pytest.approx(size)
    assert float(sums.log_mean()) == pytest.approx(math.log(7 / 3))
    assert sums.means().tolist() == pytest.approx([(1 + 4 + 16) / 7])


@pytest.mark.parametrize("kind", ["kl", "reverse_kl", "jensen_shannon", "total_variation"])
def test_a_step_is_not_measured_by_the_baseline_its_own_draws_make(kind):
    """At the first step nothing is known, so that a running baseline is 0: the gradient is that of none."""
    base = Tabular.random(SPACE, generator=Generator().manual_seed(1)).requires_grad_(False)

    def energy(x: Sequences, context: object = None) -> Tensor:
        return 0.7 * x.tokens.sum(1).double()

    slopes = []
    for baseline in ("none", "running"):
        policy = Tabular.random(SPACE, generator=Generator().manual_seed(2))
        objective = PolicyGradient(target=Tilted(base, energy), model=policy, divergence=kind, baseline=baseline)
        # An odd number: slopes of ±½ have another mean than 0.
        (loss,) = objective.losses(torch.empty(15, 0), Clock(1, 0), generator=Generator().manual_seed(3))
        slopes.append(torch.autograd.grad(loss.value, [policy.logits])[0])
        assert (float(objective.memory.baseline.value) != 0) == (baseline == "running")
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)


def test_steps_that_no_fake_reaches_are_in_neither_sum():
    """Two groups; in the second no fake reaches step 2, though two data do: (4·1 + 2·3 + 4·5)/(4 + 2 + 4) = 3."""
    terms = torch.tensor([[1.0, 3.0], [5.0, 0.0]], dtype=torch.float64)
    exists = torch.tensor([[True, True], [True, False]])
    data = torch.tensor([[4.0, 2.0], [4.0, 2.0]], dtype=torch.float64)
    found = Contrast(terms, exists, data, data, data, data, data)
    model = lstm(ENDING)
    assert float(Earm(model=model)._over_steps(found)) == pytest.approx(3.0)
    assert float(Earm(model=model, steps="mean")._over_steps(found)) == pytest.approx(9 / 3)
    assert float(Earm(model=model, steps="sum")._over_steps(found)) == pytest.approx(9 / 2)


def test_langevin_moves_without_dropout_whatever_the_models_mode():
    model = lstm(FIXED, embedding=4, dropout=0.5)
    x = model.eval().sample(5, generator=Generator().manual_seed(0))
    start = model.backbone.embed(x.tokens[:, :-1]).detach()
    moved = []
    for training in (False, True):
        model.train(training)
        generator = Generator().manual_seed(1)
        moved.append(langevin(model, start, x.lengths, steps=2, step_size=0.2, noise=0.5, generator=generator))
        assert model.training == training
    torch.testing.assert_close(moved[0], moved[1], rtol=0, atol=0)


def test_of_several_contexts_without_a_weight_the_first_is_named():
    base = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1)).requires_grad_(False)

    def energy(x: Sequences, context: Context | None = None) -> Tensor:
        assert context is not None
        forbidden = context.given.tokens[:, 0].repeat_interleave(len(x.lengths) // context.rows) > 0
        return torch.where(forbidden, math.inf, torch.zeros(len(x.lengths), dtype=torch.float64))

    context = Context(Sequences(torch.tensor([[0], [1], [2]]), torch.ones(3, dtype=torch.long)))
    x = Sequences(torch.zeros(3, 3, dtype=torch.long), torch.full((3,), 3))
    objective = ConditionalMoments(model=Tilted(base, energy), draws=40)
    with pytest.raises(UserError, match=r"None of 40 draws for the context \[1\] has a positive weight"):
        list(objective.losses((x, context), Clock(0, 0), generator=Generator().manual_seed(1)))
