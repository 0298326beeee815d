"""RALM by hand, then by enumeration, then in the loop with its base frozen."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones.transformer import Transformer
from ebar.energies.linear import OwnLogits
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import by_advancing, teacher_forced
from ebar.models.tabular import Tabular
from ebar.models.tilted import LocallyResidual
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.testing.enumeration import whole_space
from ebar.training.batches import Batches
from ebar.training.loop import fit
from ebar.training.players import Player
from ebar.types import Sequences, Space, Stepwise
from tests.models.examples import ENDING, FIXED, SPACES, lstm, three_contexts


def pair(space: Space, generator: Generator) -> Any:
    base = Tabular.random(space, conditions=3, scale=1.5, generator=generator)
    return LocallyResidual(base, lstm(space)).eval()


def test_by_hand():
    # ½ ½ and ¾ ¼ make ¾ ¼; after 0, ⅕ ⅘ and ½ ½ make ⅕ ⅘; after 1, ⅓ ⅔ and ⅔ ⅓ make ½ ½.
    space = Space(2, 2)
    rows = [[[0.5, 0.5], [0.2, 0.8], [1 / 3, 2 / 3]], [[0.75, 0.25], [0.5, 0.5], [2 / 3, 1 / 3]]]
    base, residual = (Tabular(space, torch.tensor([row], dtype=torch.float64).log() + 3.0) for row in rows)
    found = exact.log_probabilities(LocallyResidual(base, residual)).exp()[0]
    assert found.tolist() == pytest.approx([0.75 * 0.2, 0.75 * 0.8, 0.25 * 0.5, 0.25 * 0.5])


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
@torch.no_grad()
def test_each_step_is_the_product_of_both_normalised_over_the_vocabulary(space, generator):
    model, context = pair(space, generator), three_contexts()
    tokens = torch.randint(0, 2, (6, space.length), generator=generator)
    logits = teacher_forced(model, tokens, context)
    product = teacher_forced(model.base, tokens, context).softmax(-1) * teacher_forced(
        model.residual, tokens, context
    ).softmax(-1)
    torch.testing.assert_close(logits.softmax(-1), product / product.sum(-1, keepdim=True))
    torch.testing.assert_close(by_advancing(model, tokens, context).softmax(-1), logits.softmax(-1))
    every = whole_space(space, context)
    assert isinstance(model, Stepwise)
    total = model.log_prob(every, context).view(3, -1).exp().sum(1)
    torch.testing.assert_close(total, torch.ones(3).double())


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_draws_have_the_log_probability_they_are_scored_with(space, generator):
    for model in (pair(space, generator), LocallyResidual(lstm(space), lstm(space, layers=1))):
        x, log_prob = model.sample_with_log_prob(50, three_contexts(), generator=generator)
        torch.testing.assert_close(log_prob, model.eval().log_prob(x, three_contexts()).detach(), rtol=0, atol=1e-9)


def test_draws_have_the_frequencies_of_the_model(generator):
    """χ² with 80 degrees of freedom below 160: a false alarm in 3,000,000 runs."""
    model = pair(FIXED, generator)
    context = three_contexts().select(torch.tensor([1]))
    x = model.sample(20_000, context, generator=generator)
    numbers = (x.tokens * 3 ** torch.arange(3, -1, -1)).sum(1)
    expected = model.log_prob(whole_space(FIXED, context), context).detach().exp() * 20_000
    found = torch.bincount(numbers, minlength=81)
    assert float(((found - expected).square() / expected).sum()) < 160


@torch.no_grad()
def test_truncated_bases_leave_log_probabilities_and_own_logits_say_so(generator):
    base, residual = (Tabular.random(ENDING, generator=generator) for _ in range(2))
    cut = LocallyResidual(base, residual.truncated(top_k=2))
    first, _ = cut.start(1)
    assert not cut.free_logits
    assert float(first.logsumexp(1).abs().max()) < 1e-12
    with pytest.raises(UserError, match="plain softmax head"):
        OwnLogits(cut)
    # A base that cannot draw a token forbids it, and the others make up for it.
    either = LocallyResidual(base.truncated(top_k=2), residual)
    assert either.free_logits
    assert int((either.start(1)[0] == -math.inf).sum()) == 1
    torch.testing.assert_close(either.log_prob(whole_space(ENDING)).detach().exp().sum().item(), 1.0)


def test_models_of_two_spaces_are_an_error(generator):
    with pytest.raises(ValueError, match="one space"):
        LocallyResidual(lstm(FIXED), lstm(ENDING))


def test_only_the_residual_learns_and_the_base_has_no_dropout(generator):
    space = Space(3, 4)

    def transformer() -> Any:
        return Autoregressive(Transformer(3, layers=1, hidden=8, heads=2, dropout=0.3), Softmax(8, 3), space)

    torch.manual_seed(0)
    base = transformer()
    with torch.no_grad():
        base.head.linear.weight.mul_(10)
    model = LocallyResidual(base, transformer())
    assert base.training is False
    assert not LocallyResidual(
        base, transformer().eval()
    ).residual.training  # a trained one is not set back to training
    assert model.train().residual.training
    assert not base.training
    before = copy.deepcopy(base.state_dict())
    x = Sequences(torch.tensor([[0, 1, 2, 0]]).repeat(64, 1), torch.full((64,), 4))
    player = Player(module=model, optimiser=torch.optim.AdamW(model.residual.parameters(), 1e-2))
    losses = []
    objective, batches = MaximumLikelihood(model=model), Batches(data=x, batch_size=32)
    for step in fit(objective, batches, {"model": player}, generator=generator):
        losses.append(step.metrics["loss"])
        if step.number == 40:
            break
    assert losses[-1] < losses[0] / 2
    assert not base.training
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    assert all(parameter.grad is None for parameter in base.parameters())
    value = next(objective.losses(x, step.position.clock, generator=generator)).value
    value.backward()
    assert all(parameter.grad is None for parameter in base.parameters())
    assert all(parameter.grad is not None for parameter in model.residual.parameters())
