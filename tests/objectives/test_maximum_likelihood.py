import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.models.stepwise import teacher_forced
from ebar.objectives import OBJECTIVES, MaximumLikelihood
from ebar.objectives.contrastive import token_scores
from ebar.types import Clock, Context, Objective, Sequences, Space
from tests.models.examples import ENDING, FIXED, lstm, three_contexts

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


def test_the_table_of_objectives_has_the_others_too():
    others = ["activation_regularised", "auxiliary_losses", "earm", "maximum_likelihood", "pretraining"]
    assert sorted(OBJECTIVES) == [*others, "scheduled_sampling"]


class Chances(nn.Module):
    """Each token by itself, by its chances, in one pass as objectives ask for it; the last place is the end's."""

    free_logits = True

    def __init__(self, chances: list[float], space: Space):
        super().__init__()
        self.space = space
        self.logits = nn.Parameter(torch.tensor(chances, dtype=torch.float64).log())

    def start(self, rows: int, context: Context | None = None) -> Any:
        raise NotImplementedError

    advance = sample = log_prob = start

    def teacher_forced(self, tokens: Tensor, context: Context | None = None) -> Tensor:
        logits = self.logits.expand(*tokens.shape, -1).clone()
        if self.space.end is not None and tokens.shape[1] == self.space.length:
            logits[:, -1, : self.space.end] = -math.inf
            logits[:, -1, self.space.end + 1 :] = -math.inf
        return logits


def test_a_smoothed_token_costs_its_own_share_and_the_mean_of_all(generator):
    # Chances ½, ¼, ¼. Two tokens: 0 costs log 2, 1 costs log 4 = 2 log 2; the mean over the three is 5/3 log 2.
    # ε = 0.3: 0.7·3 log 2 + 0.3·2·5/3 log 2 = 3.1 log 2, over two tokens 1.55 log 2.
    x = Sequences(torch.tensor([[0, 1]]), torch.tensor([2]))
    model: Any = Chances([0.5, 0.25, 0.25], Space(3, 2))
    loss = only_loss(MaximumLikelihood(model=model, label_smoothing=0.3), x, generator)
    assert loss.value.item() == pytest.approx(1.55 * math.log(2), abs=1e-12)
    assert loss.metrics == {"nll_per_token": pytest.approx(1.5 * math.log(2), abs=1e-12)}


def test_where_only_the_end_can_stand_there_is_nothing_to_smooth(generator):
    # The last place costs 0, smoothed or not; the first costs 0.7·2 log 2 + 0.3·5/3 log 2 = 1.9 log 2.
    x = Sequences(torch.tensor([[1, 0]]), torch.tensor([2]))
    model: Any = Chances([0.5, 0.25, 0.25], Space(3, 2, end=0))
    loss = only_loss(MaximumLikelihood(model=model, label_smoothing=0.3), x, generator)
    assert loss.value.item() == pytest.approx(1.9 / 2 * math.log(2), abs=1e-12)
    loss.value.backward()
    assert bool(model.logits.grad.isfinite().all())
    # ∂ of the first place only: softmax − 0.7·(0, 1, 0) − 0.3·(⅓, ⅓, ⅓), halved
    torch.testing.assert_close(model.logits.grad, torch.tensor([0.2, -0.275, 0.075], dtype=torch.float64))


def test_smoothing_is_that_of_torch_where_all_tokens_can_stand(generator):
    model = lstm(FIXED)
    x = model.sample(9, generator=generator)
    loss = only_loss(MaximumLikelihood(model=model, label_smoothing=0.2), x, generator)
    logits = teacher_forced(model, x.tokens).flatten(0, 1)
    wanted = nn.functional.cross_entropy(logits, x.tokens.flatten(), label_smoothing=0.2)
    torch.testing.assert_close(loss.value, wanted)
    for found, other in zip(*(torch.autograd.grad(v, model.parameters()) for v in (loss.value, wanted)), strict=True):
        torch.testing.assert_close(found, other)


@pytest.mark.parametrize("per", ["token", "sequence"])
def test_of_a_stepwise_model_it_is_the_log_probability_too(per, generator):
    model, context = lstm(ENDING), three_contexts()
    x = model.sample(4, context, generator=generator)
    x = x._replace(tokens=torch.where(x.mask(), x.tokens, 99))  # padding may hold anything
    loss = only_loss(MaximumLikelihood(model=model, per=per), (x, context), generator)
    torch.testing.assert_close(loss.value, -model.log_prob(x, context).sum() / loss.weight)


def test_a_sequence_that_is_none_of_the_space_costs_infinity(generator):
    x = Sequences(torch.tensor([[0, 1, 0, 1]]), torch.tensor([4]))  # it has no end
    assert only_loss(MaximumLikelihood(model=lstm(ENDING)), x, generator).value.item() == math.inf
    longer = Sequences(torch.tensor([[0, 1, 0, 1, 0, 2]]), torch.tensor([6]))
    assert only_loss(MaximumLikelihood(model=lstm(ENDING)), longer, generator).value.item() == math.inf


def test_held_out_data_is_measured_without_smoothing():
    model = lstm(ENDING)
    smoothed = MaximumLikelihood(model=model, label_smoothing=0.1, per="sequence")
    assert smoothed.validation == MaximumLikelihood(model=model, per="sequence")


def test_smoothing_needs_a_share_below_one_and_a_model_that_shows_its_tokens(generator):
    with pytest.raises(ValueError, match="label_smoothing"):
        MaximumLikelihood(model=Unigram([0.0] * 3), label_smoothing=1.0)
    with pytest.raises(UserError, match="no label can be smoothed"):
        only_loss(MaximumLikelihood(model=Unigram([0.0] * 3), label_smoothing=0.1), X, generator)


@pytest.mark.parametrize("mean", [False, True])
def test_scores_and_their_gradient_are_those_of_torch(mean, generator, monkeypatch):
    monkeypatch.setattr("ebar.objectives.contrastive.NUMBERS", 16)  # several blocks, the last one smaller
    logits = torch.randn(5, 2, 4, dtype=torch.float64, generator=generator)
    logits[3, 1, :3] = -math.inf
    logits.requires_grad_()
    tokens = torch.randint(4, (5, 2), generator=generator)
    tokens[3, 1] = 3
    factors = torch.randn(3, 5, 2, dtype=torch.float64, generator=generator)
    found = token_scores(logits, tokens, mean=mean)
    finite = logits.isfinite()
    plain = (
        logits.gather(2, tokens[..., None]).squeeze(2),
        logits.logsumexp(2),
        torch.where(finite, logits, 0.0).sum(2) / finite.sum(2) if mean else torch.zeros_like(found.mean),
    )
    for mine, other in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, other)
    totals = [sum((each * factor).sum() for each, factor in zip(kind, factors, strict=True)) for kind in (found, plain)]
    mine, other = (torch.autograd.grad(total, logits)[0] for total in totals)
    torch.testing.assert_close(mine, other)
    torch.testing.assert_close(found.log_prob, logits.log_softmax(2).gather(2, tokens[..., None]).squeeze(2))
