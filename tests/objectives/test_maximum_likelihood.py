import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.objectives import OBJECTIVES, MaximumLikelihood
from ebar.types import Clock, Context, Objective, Sequences, Space

X = Sequences(torch.tensor([[0, 0, 0], [1, 1, 0]]), torch.tensor([1, 3]))  # the padding of the first is ignored


class Unigram(nn.Module):
    """Each token by itself, softmax of three logits."""

    def __init__(self, logits: list[float]):
        super().__init__()
        self.space = Space(vocabulary=3, length=3, end=0)
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.seen: Context | None = None

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        self.seen = context
        return (self.logits.log_softmax(0)[x.tokens] * x.mask()).sum(1)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        raise NotImplementedError


def only_loss(objective: Objective, batch: Any, generator: Generator) -> Any:
    (loss,) = objective.losses(batch, Clock(0, 0), generator=generator)
    return loss


@pytest.mark.parametrize(("per", "value", "weight"), [("token", 1.0, 4.0), ("sequence", 2.0, 2.0)])
def test_four_tokens_of_chance_a_half_cost_log_2_each(per, value, weight, generator):
    model = Unigram([0.0, 0.0, -math.inf])  # ½, ½, 0
    loss = only_loss(MaximumLikelihood(model=model, per=per), X, generator)
    assert loss.value.item() == pytest.approx(value * math.log(2), abs=1e-12)
    assert loss.metrics == {f"nll_per_{per}": loss.value.item()}
    assert (loss.player, loss.weight) == ("model", weight)


def test_the_gradient_is_the_models_share_of_each_token_less_the_datas(generator):
    model = Unigram([0.3, -0.2, 0.9])
    only_loss(MaximumLikelihood(model=model), X, generator).value.backward()
    share = torch.tensor([2 / 4, 2 / 4, 0.0], dtype=torch.float64)  # of 0, 1, 2 in X
    torch.testing.assert_close(model.logits.grad, model.logits.detach().softmax(0) - share)


def test_a_sequence_without_a_chance_costs_infinity(generator):
    model = Unigram([0.0, -math.inf, 0.0])
    assert only_loss(MaximumLikelihood(model=model), X, generator).value.item() == math.inf


def test_the_context_reaches_the_model(generator):
    model, context = Unigram([0.0, 0.0, 0.0]), Context(X)
    only_loss(MaximumLikelihood(model=model), (X, context), generator)
    assert model.seen is context


def test_an_unknown_unit_is_an_error_that_lists_the_real_ones(generator):
    objective = MaximumLikelihood(model=Unigram([0.0] * 3))
    object.__setattr__(objective, "per", "word")
    with pytest.raises(UserError, match="sequence, token"):
        only_loss(objective, X, generator)


def test_every_objective_of_the_table_is_one():
    assert isinstance(MaximumLikelihood(model=Unigram([0.0] * 3)), Objective)
    assert OBJECTIVES["maximum_likelihood"] is MaximumLikelihood
