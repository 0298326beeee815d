import math
from typing import Any

import pytest
import torch
from torch.func import functional_call

from ebar.models.drawing import Advances
from ebar.models.stepwise import teacher_forced, token_log_probs
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space, Stepwise
from tests.models.examples import ENDING, FIXED, MODELS, lstm, model_of, three_contexts


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
@torch.no_grad()
def test_one_step_at_a_time_equals_the_parallel_pass(kind, conditional, generator):
    model = model_of(kind, ENDING, torch.float64, generator)
    assert isinstance(model, Stepwise)
    context = three_contexts() if conditional else None
    tokens = torch.randint(0, 2, (6, 4), generator=generator)
    first, state = model.start(6, context)
    together, _ = model.advance(tokens, state)
    alone = []
    for column in tokens.unbind(1):
        logits, state = model.advance(column[:, None], state)
        alone.append(logits[:, 0])
    torch.testing.assert_close(torch.stack(alone, 1), together, rtol=0, atol=1e-12)
    assert first.shape == (6, 3)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_selecting_rows_of_a_state_reorders_drops_and_repeats_them(kind, generator):
    model = model_of(kind, ENDING, torch.float64, generator)
    tokens = torch.randint(0, 2, (4, 2), generator=generator)
    _, state = model.start(4)
    _, state = model.advance(tokens, state)
    rows = torch.tensor([3, 0, 0])
    following = torch.tensor([[1], [0], [1]])
    picked, _ = model.advance(following, state.select(rows))
    _, fresh = model.start(3)
    whole, _ = model.advance(torch.cat([tokens[rows], following], 1), fresh)
    torch.testing.assert_close(picked, whole[:, -1:])


@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_a_state_is_a_value_that_drawing_does_not_change(layers):
    model = lstm(ENDING, layers=layers)
    _, state = model.start(5)
    before = state.inner.hidden.clone(), state.inner.cell.clone()
    stepper = model.stepper(state)
    for _ in range(3):
        stepper.step(torch.ones(5, dtype=torch.long))
    assert torch.equal(before[0], state.inner.hidden)
    assert torch.equal(before[1], state.inner.cell)


@torch.no_grad()
def test_only_the_end_stands_in_the_last_place():
    model = lstm(ENDING)
    logits, state = model.start(1)
    assert bool(logits.isfinite().all())
    rest, _ = model.advance(torch.zeros(1, 4, dtype=torch.long), state)
    assert bool(rest[:, :3].isfinite().all())
    assert rest[0, 3].tolist()[:2] == [-math.inf, -math.inf]
    assert math.isfinite(rest[0, 3, 2])
    only_end = lstm(Space(3, 1, 2))
    assert float(only_end.log_prob(Sequences(torch.tensor([[2]]), torch.tensor([1])))) == 0.0


@torch.no_grad()
def test_what_is_not_a_sequence_of_the_space_has_probability_zero():
    model = lstm(ENDING)
    tokens = torch.tensor([[0, 1, 0, 1, 0], [0, 2, 1, 2, 0], [0, 1, 1, 0, 0], [2, 0, 0, 0, 0]])
    log_probs = model.log_prob(Sequences(tokens, torch.tensor([5, 4, 3, 1])))
    assert log_probs[:3].tolist() == [-math.inf] * 3  # no end; two ends; cut short
    assert math.isfinite(log_probs[3])


@torch.no_grad()
def test_a_context_is_a_prefix_read_before_the_first_token():
    """log q(x | C) = log q(Cx) − log q(C) in a space long enough, for rows of unequal length and whatever pads them."""
    model = lstm(FIXED)
    context = three_contexts()
    x = Sequences(torch.tensor([[0, 1, 2, 2], [2, 2, 1, 0], [1, 1, 1, 1]]), torch.tensor([4, 4, 4]))
    got = model.log_prob(x, context)
    for row in range(3):
        given = context.given.prefix(row)
        model.space = Space(3, len(given) + 4)
        joined = Sequences(torch.tensor([given + x.prefix(row)]), torch.tensor([len(given) + 4]))
        wanted = token_log_probs(model, joined)[0, len(given) :].sum()
        model.space = FIXED
        torch.testing.assert_close(got[row], wanted)


@torch.no_grad()
def test_an_empty_context_is_no_context():
    model = lstm(ENDING)
    x = whole_space(ENDING)
    empty = Context(Sequences(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.long)))
    torch.testing.assert_close(model.log_prob(x, empty), model.log_prob(x))


def test_contexts_that_cannot_be_shared_evenly_are_refused():
    x = Sequences(torch.tensor([[2], [2]]), torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="2 sequences cannot be shared evenly among 3 contexts"):
        lstm(ENDING).log_prob(x, three_contexts())


def test_the_context_is_read_once_however_many_draws(generator):
    model = lstm(ENDING)
    rows = []
    model.backbone.lstm.register_forward_hook(lambda module, inputs, output: rows.append(output[1][0].shape[1]))
    model.sample(50, three_contexts(), generator=generator)
    assert rows == [3]


def test_scoring_and_sampling_are_without_dropout_and_teacher_forcing_has_it_in_training_mode(generator):
    model = lstm(ENDING, dropout=0.5)
    x = whole_space(ENDING)
    steady, forced = model.log_prob(x), teacher_forced(model, x.tokens)
    gradients = torch.autograd.grad(steady.sum(), list(model.parameters()))
    model.train()
    scored = model.log_prob(x)
    torch.testing.assert_close(scored, steady, rtol=0, atol=0)
    for found, wanted in zip(torch.autograd.grad(scored.sum(), list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert not torch.allclose(teacher_forced(model, x.tokens), forced)  # what objectives train with
    model.backbone.eval()  # a part with its own mode keeps it
    model.head.train()
    model.train(True)
    model.backbone.lstm.eval()
    modes = [part.training for part in model.modules()]
    drawn, log_q = model.sample_with_log_prob(20, generator=generator)
    assert [part.training for part in model.modules()] == modes
    torch.testing.assert_close(model.eval().log_prob(drawn), log_q)


def test_truncated_sampling_is_without_dropout_too(generator):
    model = lstm(ENDING, dropout=0.5).train()
    cut = model.truncated(top_k=2)
    x, log_q = cut.sample_with_log_prob(20, generator=generator)
    assert model.training
    torch.testing.assert_close(cut.eval().log_prob(x), log_q)


def test_the_gradient_of_log_prob_is_that_of_finite_differences():
    model = lstm(ENDING, embedding=2, hidden=2, dropout=0.0)
    x = Sequences(torch.tensor([[0, 1, 1, 2], [2, 0, 0, 0], [1, 0, 1, 0]]), torch.tensor([4, 1, 3]))
    context = three_contexts()
    names, values = zip(*model.named_parameters(), strict=True)
    module = _LogProb(model)

    def log_prob(*parameters):
        given = {f"model.{name}": value for name, value in zip(names, parameters, strict=True)}
        return functional_call(module, given, (x, context))[:2]  # the third is no sequence of the space

    assert torch.autograd.gradcheck(log_prob, tuple(value.detach().requires_grad_() for value in values))


class _LogProb(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x, context):
        return self.model.log_prob(x, context)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_of_the_total_probability_is_zero(kind, generator):
    """Σ p = 1 whatever the parameters, so Σ p·∇log p = 0: the exact twin of every score-function gradient."""
    model = model_of(kind, ENDING, torch.float64, generator)
    log_probs = model.log_prob(whole_space(ENDING))
    gradients = torch.autograd.grad((log_probs.detach().exp() * log_probs).sum(), list(model.parameters()))
    single = torch.autograd.grad(model.log_prob(whole_space(ENDING))[5], list(model.parameters()))
    assert max(float(g.abs().max()) for g in gradients) < 1e-12
    assert max(float(g.abs().max()) for g in single) > 1e-3


@torch.no_grad()
def test_scoring_without_gradient_in_blocks_changes_nothing(monkeypatch):
    model = lstm(ENDING)
    x, context = whole_space(ENDING, three_contexts()), three_contexts()
    whole = model.log_prob(x, context)
    for part in ("drawing", "stepwise"):
        monkeypatch.setattr(f"ebar.models.{part}.BLOCK", 10)
    torch.testing.assert_close(model.log_prob(x, context), whole)


@torch.no_grad()
def test_a_backbone_without_a_quick_step_draws_by_advancing(generator):
    model = lstm(ENDING)
    _, state = model.start(4)
    plain, quick = Advances(model, state), model.stepper(state)
    for token in (0, 1, 1):
        tokens = torch.full((4,), token)
        torch.testing.assert_close(plain.step(tokens), quick.step(tokens))
    for stepper in (plain, quick):
        stepper.keep(torch.tensor([2, 0]))
    torch.testing.assert_close(plain.step(torch.tensor([0, 1])), quick.step(torch.tensor([0, 1])))
