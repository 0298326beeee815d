import math
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.models.construction import FromLogits
from ebar.models.drawing import draw_fakes
from ebar.models.ngram import Tabular
from ebar.models.stepwise import teacher_forced
from ebar.objectives import Earm, MaximumLikelihood, ScheduledSampling
from ebar.objectives.contrastive import ScoredTokens as Tokens
from ebar.objectives.contrastive import TokenScores, contrast, normalised_weights, past, token_scores
from ebar.types import Clock, Context, Loss, Sequences, Space
from tests.models.examples import ENDING, FIXED, lstm, three_contexts

SPACES = pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])


def loss_of(objective: Any, batch: Any, step: int = 0, epoch: int = 0, seed: int = 1) -> Loss:
    (loss,) = objective.losses(batch, Clock(step, epoch), generator=Generator().manual_seed(seed))
    return loss  # type: ignore[no-any-return]


def gradient(model: Any, value: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, model.parameters())])


def numbers(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# --- by hand ---


def test_one_step_by_hand():
    """Two places; two fakes whose LSE at the second place are 0 and log 3, so w = ½ and 1½, shares ¼ and ¾."""
    fake = TokenScores(
        numbers([-1.0, 0.0], [-2.0, 0.0]), numbers([0.0, 0.0], [0.0, math.log(3)]), numbers([0, 0], [0, 0])
    )
    real = TokenScores(numbers([0.5, 2.0]), numbers([1.0, 1.0]), numbers([0, 0]))
    fake = TokenScores(*(each.requires_grad_() for each in fake))
    real = TokenScores(*(each.requires_grad_() for each in real))
    held = torch.ones(2, 2, dtype=torch.bool)
    found = contrast(Tokens(real, held[:1]), Tokens(fake, held), variance_reduced=False)
    # Step 1: log Z = log mean(1, 1) = 0; −logit = −0.5. Step 2: log Z = log mean(1, 3) = log 2; the data has
    # logit 2 and log q(x₁) = 0.5 − 1.
    assert found.terms.tolist() == [pytest.approx([-0.5, math.log(2) - 2.0 + 0.5], abs=1e-12)]
    assert found.effective.tolist() == [pytest.approx([2.0, 1 / (1 / 16 + 9 / 16)])]
    assert found.gap.tolist() == [pytest.approx([-1.0, math.log(3) / 2 - 1.0])]
    assert found.gain.tolist() == [pytest.approx([1.0, 1.0 - math.log(2)])]
    wanted = {False: [[0.25, 0], [0.75, 0]], True: [[-0.25, 0], [0.25, 0]]}  # w/2, and (w − 1)/2
    for reduced, coefficients in wanted.items():
        found = contrast(Tokens(real, held[:1]), Tokens(fake, held), variance_reduced=reduced)
        to_logit, to_lse, of_real = torch.autograd.grad(
            found.terms[0, 1], (fake.logit, fake.log_partition, real.logit), retain_graph=True
        )
        assert to_logit.tolist() == coefficients
        # LSE's own share at place 2, and with the opposite sign what log q = logit − LSE has at place 1
        assert to_lse.tolist() == [
            pytest.approx([-coefficients[0][0], 0.25]),
            pytest.approx([-coefficients[1][0], 0.75]),
        ]
        assert of_real.tolist() == [[-1.0, -1.0]]


def test_the_baseline_runs_over_the_rows_that_hold_a_token_the_end_included():
    """Three fakes, of which one ends at the first place: at step 2 two go on, w = 1 each; all three held x₁."""
    zeros = torch.zeros(3, 2, dtype=torch.float64)
    logit = zeros.clone().requires_grad_()
    fake = Tokens(TokenScores(logit, zeros, zeros), Sequences(zeros.long(), torch.tensor([2, 1, 2])).mask())
    real = Tokens(TokenScores(*(zeros[:1],) * 3), torch.ones(1, 2, dtype=torch.bool))
    (slope,) = torch.autograd.grad(contrast(real, fake).terms[0, 1], logit)
    assert slope.tolist() == [
        pytest.approx([1 / 2 - 1 / 3, 0]),
        pytest.approx([-1 / 3, 0]),
        pytest.approx([1 / 2 - 1 / 3, 0]),
    ]


def test_the_recent_factors_are_those_just_before():
    log_probs = numbers([1.0, 10.0, 100.0, 1000.0])
    assert past(log_probs, 0).tolist() == [[0, 0, 0, 0]]
    assert past(log_probs, 1).tolist() == [[0, 1, 10, 100]]
    assert past(log_probs, 2).tolist() == [[0, 1, 11, 110]]
    assert past(log_probs, 9).tolist() == past(log_probs, None).tolist() == [[0, 1, 11, 111]]


def test_weights_are_tempered_and_clipped_and_still_share_one_whole():
    log_weights = torch.tensor([0.0, 0.0, 0.0, math.log(9)], dtype=torch.float64).view(1, 4, 1)
    drawn = torch.ones_like(log_weights)
    assert normalised_weights(log_weights, drawn).flatten().tolist() == pytest.approx([1 / 12, 1 / 12, 1 / 12, 3 / 4])
    tempered = normalised_weights(log_weights, drawn, temper=0.5)
    assert tempered.flatten().tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    clipped = normalised_weights(log_weights, drawn, clip=2.0)  # of the mean, ¼: ½ is the most, then all to one whole
    assert clipped.flatten().tolist() == pytest.approx([1 / 9, 1 / 9, 1 / 9, 2 / 3])
    drawn[0, 3] = 0
    assert normalised_weights(log_weights, drawn).flatten().tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert normalised_weights(log_weights, torch.zeros_like(drawn)).flatten().tolist() == [0, 0, 0, 0]


# --- the whole loss ---


@SPACES
@pytest.mark.parametrize("draws", [1, 3])
def test_it_is_the_cross_entropy_and_the_weighted_term_in_two_separate_passes(space, draws):
    model, context = lstm(space, embedding=4), three_contexts()
    x = model.sample(2, context, generator=Generator().manual_seed(7))
    loss = loss_of(Earm(model=model, weight=0.3, draws=draws, label_smoothing=0.1), (x, context))
    ordinary = loss_of(MaximumLikelihood(model=model, label_smoothing=0.1), (x, context))
    caps = torch.full((6 * draws,), x.tokens.shape[1])
    fakes = draw_fakes(model, caps, context, generator=Generator().manual_seed(1))
    scores = [token_scores(teacher_forced(model, each.tokens, context), each.tokens) for each in (x, fakes)]
    found = contrast(Tokens(scores[0], x.mask()), Tokens(scores[1], fakes.mask()))
    tokens = torch.bincount(x.lengths - 1, minlength=x.tokens.shape[1]).flip(0).cumsum(0).flip(0)
    steps = found.terms.shape[1]  # where no fake is as long as the longest real sequence, later ones have no term
    term = (found.terms[0] * tokens[:steps]).sum() / tokens[:steps].sum()
    wanted = ordinary.value + 0.3 * term
    torch.testing.assert_close(loss.value, wanted)
    assert loss.metrics["nll_per_token"] == pytest.approx(ordinary.metrics["nll_per_token"])
    assert loss.metrics["contrastive"] == pytest.approx(float(term.detach()))
    assert loss.weight == ordinary.weight
    torch.testing.assert_close(gradient(model, loss.value), gradient(model, wanted))


def test_before_its_start_it_is_maximum_likelihood_and_draws_nothing():
    model = lstm(ENDING)
    x = model.sample(8, generator=Generator().manual_seed(2))
    objective = Earm(model=model, start_epoch=2, start_step=10, ramp=4, weight=0.8, label_smoothing=0.1)
    ordinary = loss_of(MaximumLikelihood(model=model, label_smoothing=0.1), x)
    for step, epoch in ((0, 0), (12, 1), (9, 2)):
        generator = Generator().manual_seed(1)
        before = generator.get_state()
        (loss,) = objective.losses(x, Clock(step, epoch), generator=generator)
        assert loss.value.item() == ordinary.value.item()
        assert loss.metrics == ordinary.metrics
        assert torch.equal(generator.get_state(), before)
    strengths = [loss_of(objective, x, step, 2).metrics["contrastive_weight"] for step in (12, 13, 14, 15, 99)]
    assert strengths == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])


def test_the_ramp_goes_on_where_a_checkpoint_left_it():
    model = lstm(ENDING)
    x = model.sample(8, generator=Generator().manual_seed(2))
    first, second = (Earm(model=model, ramp=10, weight=1.0) for _ in range(2))
    loss_of(first, x, step=100)
    second.memory.load_state_dict(first.memory.state_dict())
    assert loss_of(second, x, step=104).metrics["contrastive_weight"] == pytest.approx(0.5)


@SPACES
def test_steps_count_by_their_tokens_alike_or_all_together(space):
    model = lstm(space)
    x = model.sample(12, generator=Generator().manual_seed(2))
    fakes = draw_fakes(model, torch.full((12,), x.tokens.shape[1]), generator=Generator().manual_seed(1))
    scores = [token_scores(teacher_forced(model, each.tokens), each.tokens) for each in (x, fakes)]
    found = contrast(Tokens(scores[0], x.mask()), Tokens(scores[1], fakes.mask()))
    terms, steps = found.terms[0].detach(), found.terms.shape[1]
    tokens = x.mask().sum(0)[:steps].double()
    wanted = {
        "tokens": (terms * tokens).sum() / tokens.sum(), "sum": terms.sum(), "mean": terms.sum() / steps
    }  # fmt: skip
    for kind, value in wanted.items():
        options: Any = {"steps": kind}
        loss = loss_of(Earm(model=model, **options), x)
        assert loss.metrics["contrastive"] == pytest.approx(float(value))


def test_a_window_from_the_beginning_looks_at_the_first_tokens_only():
    model = lstm(Space(3, 9))
    x = model.sample(5, generator=Generator().manual_seed(2))
    loss = loss_of(Earm(model=model, window=4), x)
    fakes = draw_fakes(model, torch.full((5,), 4), generator=Generator().manual_seed(1))
    real = token_scores(teacher_forced(model, x.tokens), x.tokens)
    scores = token_scores(teacher_forced(model, fakes.tokens), fakes.tokens)
    found = contrast(
        Tokens(TokenScores(*(each[:, :4] for each in real)), x.mask()[:, :4]), Tokens(scores, fakes.mask())
    )
    assert loss.metrics["contrastive"] == pytest.approx(float(found.terms.detach().mean()))


def test_a_window_anywhere_goes_on_from_the_true_tokens_before_it():
    model = lstm(Space(3, 9), embedding=4)
    x = model.sample(5, generator=Generator().manual_seed(2))
    objective = Earm(model=model, window=4, contexts="real")
    begins = set()
    for seed in range(12):
        loss = loss_of(objective, x, seed=seed)
        generator = Generator().manual_seed(seed)
        begin = int(torch.randint(6, (), generator=generator))
        begins.add(begin)
        fakes = draw_fakes(model, torch.full((5,), 4), prefix=x.tokens[:, :begin], generator=generator)
        whole = torch.cat([x.tokens[:, :begin], fakes.tokens], 1)
        real, scores = (token_scores(teacher_forced(model, each), each) for each in (x.tokens, whole))
        window = slice(begin, begin + 4)
        found = contrast(
            *(Tokens(TokenScores(*(each[:, window] for each in kind)), fakes.mask()) for kind in (real, scores))
        )
        assert loss.metrics["contrastive"] == pytest.approx(float(found.terms.detach().mean()))
        fake = TokenScores(*(each[:, window] for each in scores))
        assert bool(fake.log_prob.isfinite().all())
    assert {0, 5} < begins  # at both ends, and between


def test_fakes_go_on_from_their_prefix_as_the_model_does():
    """After 1 1 the table leaves one way on, after 0 0 another."""
    space = Space(2, 4)
    logits = torch.zeros(1, 15, 2, dtype=torch.float64)
    model = Tabular(space, logits)
    with torch.no_grad():
        model.logits[0, 3:7, 0] = torch.tensor([50.0, 0.0, 0.0, -50.0])  # places of 00, 01, 10, 11
        model.logits[0, 7:, 0] = torch.tensor([50.0] * 4 + [-50.0] * 4)
    prefix = torch.tensor([[1, 1], [0, 0]])
    fakes = draw_fakes(model, torch.tensor([2, 2]), prefix=prefix, generator=Generator().manual_seed(0))
    assert fakes.tokens.tolist() == [[1, 1], [0, 0]]


def test_fakes_are_as_long_as_their_source_allows_and_no_longer_than_the_data():
    model, context = lstm(replace(ENDING, length=12)), three_contexts()  # sources of 1, 2 and 4 tokens
    model.head.linear.bias.data[2] = -50.0  # it never ends of itself
    x = Sequences(torch.tensor([[0, 1, 0, 1, 0, 1, 0, 2]] * 3), torch.tensor([8, 8, 8]))
    lengths = {}
    for ratio in (1.5, None):
        objective = Earm(model=model, length_ratio=ratio, length_offset=1)
        lengths[ratio] = objective._fakes(x, context, 0, 8, Generator().manual_seed(1)).lengths.tolist()
    assert lengths == {1.5: [3, 4, 7], None: [8, 8, 8]}


def test_each_context_may_have_its_own_normaliser():
    """With the fakes of a context all its own, the term is the mean of the terms of each context by itself."""
    model, context = lstm(FIXED, embedding=4), three_contexts()
    x = model.sample(1, context, generator=Generator().manual_seed(2))
    objective = Earm(model=model, normalise="context", draws=4)
    loss = loss_of(objective, (x, context))
    fakes = draw_fakes(model, torch.full((12,), 4), context, generator=Generator().manual_seed(1))
    terms = []
    for row in range(3):
        only, its = context.select(torch.tensor([row])), torch.arange(4 * row, 4 * row + 4)
        real, fake = x.select(torch.tensor([row])), fakes.select(its)
        scores = [token_scores(teacher_forced(model, each.tokens, only), each.tokens) for each in (real, fake)]
        terms.append(contrast(Tokens(scores[0], real.mask()), Tokens(scores[1], fake.mask())).terms.detach().mean())
    assert loss.metrics["contrastive"] == pytest.approx(float(torch.stack(terms).mean()))
    assert loss.metrics["contrastive"] != pytest.approx(
        loss_of(replace(objective, normalise="batch"), (x, context)).metrics["contrastive"], abs=1e-4
    )


@pytest.mark.parametrize("steps", ["tokens", "mean", "sum"])
@pytest.mark.parametrize("conditional", [False, True])
def test_true_tokens_before_a_window_are_a_context_with_a_normaliser_of_its_own(conditional, steps, monkeypatch):
    """All ways on from each prefix stand for the fakes: the term is exactly that of p_θ given the prefix.

    Logits depend on the prefix and not on the token, so that q is uniform and all ways on are equally likely; LSE and
    Z differ from prefix to prefix.
    """
    space, begin = Space(2, 4), 2
    generator = Generator().manual_seed(5)
    shifts = torch.randn(3, 15, 1, dtype=torch.float64, generator=generator)
    model: Any = Tabular(space, (2 * shifts).expand(-1, -1, 2).clone())
    context = Context(Sequences(torch.tensor([[0], [1], [2]]), torch.ones(3, dtype=torch.long)))
    x = model.sample(1 if conditional else 3, context if conditional else None, generator=generator)
    given = context if conditional else None
    ways = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    fakes = Sequences(ways.repeat(3, 1), torch.full((12,), 2))
    monkeypatch.setattr("ebar.objectives.earm.draw_fakes", lambda *_, **__: fakes)
    monkeypatch.setattr(Earm, "_window", lambda *_: (begin, begin + 2))
    objective = Earm(
        model=model, weight=1.0, cross_entropy=False, window=2, contexts="real", normalise="context", draws=4,
        recent=None, steps=steps,
    )  # fmt: skip
    loss = loss_of(objective, (x, given) if conditional else x)
    terms = []
    for row in range(3):
        own = None if given is None else given.select(torch.tensor([row]))
        prefix = x.tokens[row : row + 1, :begin]
        every = torch.cat([prefix.expand(4, -1), ways], 1)
        scores = token_scores(teacher_forced(model, every, own), every)
        real = token_scores(teacher_forced(model, x.tokens[row : row + 1], own), x.tokens[row : row + 1])
        log_q = scores.log_prob[:, begin:]
        first = scores.log_partition[0, begin]  # one prefix of no token
        second = torch.logsumexp((log_q[:, 0] + scores.log_partition[:, begin + 1])[::2], 0)  # two of one
        logit, log_prob = real.logit[0, begin:], real.log_prob[0, begin:]
        terms += [first - logit[0], second - logit[1] - log_prob[0]]
    exact = torch.stack(terms).sum() / (3 if steps == "sum" else 6)
    assert float(loss.value.detach()) == pytest.approx(float(exact.detach()), abs=1e-12)
    torch.testing.assert_close(gradient(model, loss.value), gradient(model, exact), atol=1e-12, rtol=0)
    together = loss_of(replace(objective, normalise="batch"), (x, given) if conditional else x)
    assert float(together.value.detach()) != pytest.approx(float(exact.detach()), abs=1e-3)


def test_scheduled_sampling_is_in_the_cross_entropy_only():
    model = lstm(ENDING, embedding=4)
    x = model.sample(8, generator=Generator().manual_seed(2))
    options: Any = {"k": 0.0, "mixing": "argmax", "label_smoothing": 0.1}
    mixed = loss_of(Earm(model=model, base="scheduled_sampling", weight=0.5, **options), x)
    plain = loss_of(Earm(model=model, weight=0.5, label_smoothing=0.1), x)
    scheduled = loss_of(ScheduledSampling(model=model, **options), x)
    ordinary = loss_of(MaximumLikelihood(model=model, label_smoothing=0.1), x)
    torch.testing.assert_close(mixed.value - scheduled.value, plain.value - ordinary.value)
    assert mixed.metrics["contrastive"] == pytest.approx(plain.metrics["contrastive"])
    late = loss_of(Earm(model=model, base="scheduled_sampling", start_step=9, **options), x)
    assert late.value.item() == scheduled.value.item()


def test_fakes_are_drawn_without_dropout_and_the_mode_comes_back():
    model = lstm(FIXED, dropout=0.9)
    model.train()
    fakes = [draw_fakes(model, torch.full((50,), 4), generator=Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(fakes[0].tokens, fakes[1].tokens)
    assert model.training
    assert model.backbone.training
    with torch.no_grad():
        assert torch.equal(
            draw_fakes(model.eval(), torch.full((50,), 4), generator=Generator().manual_seed(1)).tokens, fakes[0].tokens
        )


# --- what can go wrong ---


def test_a_head_without_free_logits_is_an_error_that_says_why():
    model = lstm(FIXED).truncated(top_k=2)
    with pytest.raises(UserError, match=r"freedom of a softmax's shift.*every weight 1"):
        Earm(model=model)


def test_a_collapse_of_the_weights_is_told_once():
    model = Tabular.random(Space(3, 3), scale=0.1, generator=Generator().manual_seed(0))
    with torch.no_grad():
        model.logits[0, [1, 4, 5, 6]] += 100.0  # after a first 0 the shift is huge: those fakes have all the weight
        model.logits[0, 0, 0] -= 3.5  # and there are few of them
    x = model.sample(256, generator=Generator().manual_seed(3))
    objective = Earm(model=model)
    with pytest.warns(RuntimeWarning, match=r"have collapsed.*temper or clip"):
        first = loss_of(objective, x)
    assert first.metrics["smallest_effective_share"] < 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_of(objective, x)
    assert loss_of(Earm(model=model, temper=0.0), x).metrics["effective_share"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"weight": -1.0}, "weight"), ({"ramp": -1}, "ramp"), ({"length_ratio": 0.0}, "length_ratio"),
     ({"langevin_step_size": 0.0}, "langevin_step_size"),
     ({"draws": 0}, "draws"), ({"normalise": "context"}, "at least 2"), ({"recent": -1}, "recent"),
     ({"clip": 0.5}, "clip"), ({"temper": -1.0}, "temper"), ({"window": 0}, "window"),
     ({"label_smoothing": 1.5}, "label_smoothing"), ({"decay": "exponential", "k": 2.0}, "k must")],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Earm(model=lstm(FIXED), **options)


def test_held_out_data_is_measured_by_the_likelihood():
    model = lstm(FIXED)
    assert Earm(model=model, label_smoothing=0.1).validation == MaximumLikelihood(model=model)


def test_it_needs_no_algorithm_that_is_not_deterministic():
    model = lstm(ENDING, embedding=4)
    x = model.sample(8, generator=Generator().manual_seed(2))
    torch.use_deterministic_algorithms(True)
    try:
        found = [
            gradient(model, loss_of(Earm(model=model, base="scheduled_sampling", k=0.5), x).value) for _ in range(2)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*found)


def test_training_with_it_fits_the_data():
    model = lstm(FIXED, embedding=4, layers=1)
    x = Sequences(torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]] * 10), torch.full((30,), 4))
    objective = Earm(model=model, weight=1.0)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    seen = []
    for step in range(30):
        loss = loss_of(objective, x, step=step, seed=step)
        optimiser.zero_grad()
        loss.value.backward()
        optimiser.step()
        seen.append(loss.metrics)
    assert seen[-1]["nll_per_token"] < 0.6 * seen[0]["nll_per_token"]
    assert seen[-1]["contrastive"] < seen[0]["contrastive"]


class Own(torch.nn.Module):
    """A user's network."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.out = (
            torch.nn.Embedding(4, 6),
            torch.nn.GRU(6, 8, batch_first=True),
            torch.nn.Linear(8, 3),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.gru(self.embedding(tokens))[0])  # type: ignore[no-any-return]


def test_a_users_own_network_is_trained_in_three_lines():
    model = FromLogits(Own(), Space(3, 5, end=2), beginning=3)
    objective = Earm(model=model)
    loss = loss_of(objective, model.sample(6, generator=Generator().manual_seed(0)))
    loss.value.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    given = Context(Sequences(torch.tensor([[0, 1], [1, 9]]), torch.tensor([2, 1])))
    x = model.sample(3, given, generator=Generator().manual_seed(0))
    assert math.isfinite(float(loss_of(objective, (x, given)).value.detach()))
