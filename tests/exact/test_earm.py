"""E-ARM's contrastive term against the exact KL divergence, by enumeration of a recurrent model's sequences."""

import itertools
import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.lstm import Lstm
from ebar.heads.softmax import Softmax
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import teacher_forced
from ebar.objectives.contrastive import ScoredTokens as Tokens
from ebar.objectives.contrastive import TokenScores, contrast, token_scores
from ebar.types import Sequences, Space

FIXED, ENDING = Space(3, 4), Space(3, 4, end=2)
SPACES = pytest.mark.parametrize("space", [FIXED, ENDING], ids=["fixed", "ending"])
SMALL = pytest.mark.parametrize("space", [Space(2, 3), Space(3, 3, end=2)], ids=["fixed", "ending"])
RECENT = pytest.mark.parametrize("recent", [None, 1, 2])
REDUCED = pytest.mark.parametrize("variance_reduced", [False, True], ids=["w", "w-1"])


def recurrent(space: Space) -> Any:
    torch.manual_seed(5)
    backbone = Lstm(space.vocabulary, layers=1, hidden=3, dropout=0.0)
    model: Any = Autoregressive(backbone, Softmax(3, space.vocabulary), space).double()
    with torch.no_grad():  # far from uniform, and the past matters, to the shift of the logits too
        for parameter in model.parameters():
            parameter.normal_(0, 1.2, generator=Generator().manual_seed(parameter.numel()))
        model.head.linear.weight.mul_(4)
    return model


def data_of(space: Space) -> Tensor:
    """Chances of all sequences of the space, none of which the model can have."""
    x = all_sequences(space)
    return torch.rand(len(x.lengths), dtype=torch.float64, generator=Generator().manual_seed(2)).softmax(0)


def enumerated(model: Any, x: Sequences) -> TokenScores:
    return token_scores(teacher_forced(model, x.tokens), x.tokens)


def gradient(model: Any, value: Tensor) -> Tensor:
    parts = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
    return torch.cat([part.reshape(-1) for part in parts])


@cache
def exact_gradients(space: Space, recent: int | None) -> list[Tensor]:
    """Of each divergence, and of their sum."""
    model = recurrent(space)
    divergences = exact_divergences(model, space, recent)
    return [gradient(model, value) for value in (*divergences, torch.stack(divergences).sum())]


def exact_divergences(model: Any, space: Space, recent: int | None) -> list[Tensor]:
    """KL(p_data ‖ p_θ) over x₍≤k₎ at each step k, straight from equation 4: prefix by prefix, one step at a time."""
    x, chances = all_sequences(space), data_of(space)
    divergences = []
    for k in range(1, space.length + 1):
        reaching = [row for row in range(len(chances)) if int(x.lengths[row]) >= k]
        joint: dict[tuple[int, ...], Tensor] = {}
        for row in reaching:
            key = tuple(x.prefix(row)[:k])
            joint[key] = joint.get(key, torch.zeros((), dtype=torch.float64)) + chances[row]
        mass = sum(joint.values())
        log_scores, log_terms = {}, []
        for prefix in {key[:-1] for key in joint}:
            logits, state = model.start(1)
            log_q = torch.zeros((), dtype=torch.float64)
            for place, token in enumerate(prefix):
                factor = torch.log_softmax(logits[0], 0)[token]
                old = recent is not None and place < k - 1 - recent
                log_q = log_q + (factor.detach() if old else factor)
                after, state = model.advance(torch.tensor([[token]]), state)
                logits = after[:, 0]
            for token in range(space.vocabulary):
                log_scores[(*prefix, token)] = log_q + logits[0, token]
            log_terms.append(log_q + torch.logsumexp(logits[0], 0))
        log_z = torch.logsumexp(torch.stack(log_terms), 0)
        terms = [p / mass * (torch.log(p / mass) - log_scores[key] + log_z) for key, p in joint.items()]
        divergences.append(torch.stack(terms).sum())
    return divergences


def exact_log_z(scores: TokenScores, x: Sequences) -> Tensor:
    """log E_q[e^LSE; the sequence reaches k], from the scores of all sequences."""
    log_q = torch.where(x.mask(), scores.log_prob, 0.0).sum(1)
    return torch.logsumexp(torch.where(x.mask(), scores.log_partition + log_q[:, None], -math.inf), 0).detach()


def chances_of(scores: TokenScores, x: Sequences) -> Tensor:
    return torch.where(x.mask(), scores.log_prob, 0.0).sum(1).exp().detach()


@SPACES
@RECENT
@REDUCED
@pytest.mark.parametrize("drawn_last", [False, True], ids=["expected", "drawn"])
def test_the_gradient_is_that_of_the_divergences(space, recent, variance_reduced, drawn_last):
    model, x = recurrent(space), all_sequences(space)
    *exact, total = exact_gradients(space, recent)
    scores = enumerated(model, x)
    real = Tokens(scores, x.mask(), data_of(space))
    fake = Tokens(scores, x.mask(), chances_of(scores, x))
    found = contrast(real, fake, recent=recent, variance_reduced=variance_reduced, drawn_last=drawn_last)
    for k, wanted in enumerate(exact):
        assert k == 0 or wanted.norm() > 0.05
        torch.testing.assert_close(gradient(model, found.terms[0, k]), wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradient(model, found.terms.sum()), total, rtol=0, atol=1e-9)


@SPACES
def test_its_value_is_the_divergence_but_for_the_datas_entropy(space):
    model, x = recurrent(space), all_sequences(space)
    scores, chances = enumerated(model, x), data_of(space)
    found = contrast(Tokens(scores, x.mask(), chances), Tokens(scores, x.mask(), chances_of(scores, x)), recent=None)
    for k, divergence in enumerate(exact_divergences(model, space, None), start=1):
        joint: dict[tuple[int, ...], float] = {}
        for row in range(len(chances)):
            if int(x.lengths[row]) >= k:
                key = tuple(x.prefix(row)[:k])
                joint[key] = joint.get(key, 0.0) + float(chances[row])
        mass = math.fsum(joint.values())
        entropy = -math.fsum(p / mass * math.log(p / mass) for p in joint.values())
        assert float(found.terms[0, k - 1].detach()) - entropy == pytest.approx(float(divergence.detach()), abs=1e-9)


@SPACES
def test_without_the_datas_own_prefixes_their_likelihood_is_missing_and_nothing_else(space):
    model, x = recurrent(space), all_sequences(space)
    scores, chances = enumerated(model, x), data_of(space)
    real, fake = Tokens(scores, x.mask(), chances), Tokens(scores, x.mask(), chances_of(scores, x))
    with_term, without = (contrast(real, fake, recent=2, data_term=wanted) for wanted in (True, False))
    for k in range(1, space.length):
        reach = torch.where(x.mask()[:, k], chances, 0.0)
        past = (reach[:, None] * scores.log_prob[:, max(0, k - 2) : k]).sum() / reach.sum()
        difference = with_term.terms[0, k] - without.terms[0, k]
        torch.testing.assert_close(gradient(model, difference), gradient(model, -past), rtol=0, atol=1e-9)


@SPACES
def test_without_the_weights_it_is_another_gradient(space):
    model, x = recurrent(space), all_sequences(space)
    scores = enumerated(model, x)
    real, fake = Tokens(scores, x.mask(), data_of(space)), Tokens(scores, x.mask(), chances_of(scores, x))
    exact = exact_gradients(space, 2)[-1]
    assert (gradient(model, contrast(real, fake, temper=0.0).terms.sum()) - exact).norm() > 0.05
    torch.testing.assert_close(gradient(model, contrast(real, fake).terms.sum()), exact, rtol=0, atol=1e-9)


def all_batches(model: Any, space: Space, size: int, **options: Any) -> Tensor:
    """The mean of the estimator over every batch of fakes there is: one group each, weighted by its chance."""
    x, chances = all_sequences(space), data_of(space)
    scores = enumerated(model, x)
    q = chances_of(scores, x)
    rows = torch.tensor(list(itertools.product(range(len(q)), repeat=size)))
    count = len(rows)
    every = torch.arange(len(q)).repeat(count)
    real = Tokens(TokenScores(*(each[every] for each in scores)), x.mask()[every], chances.repeat(count))
    flat = rows.reshape(-1)
    fake = Tokens(TokenScores(*(each[flat] for each in scores)), x.mask()[flat])
    found = contrast(real, fake, groups=count, log_z=exact_log_z(scores, x), **options)
    return gradient(model, (q[rows].prod(1)[:, None] * found.terms).sum())


@SMALL
@RECENT
@REDUCED
@pytest.mark.parametrize("size", [1, 2, 3])
def test_given_the_exact_normaliser_the_estimator_is_unbiased(space, recent, variance_reduced, size):
    model = recurrent(space)
    exact = exact_gradients(space, recent)[-1]
    mean = all_batches(model, space, size, recent=recent, variance_reduced=variance_reduced)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-9)


@SMALL
def test_the_last_token_may_be_drawn_without_bias(space):
    model = recurrent(space)
    exact = exact_gradients(space, 2)[-1]
    torch.testing.assert_close(all_batches(model, space, 2, drawn_last=True), exact, rtol=0, atol=1e-9)


def biases(space: Space, sizes: list[int], variance_reduced: bool) -> list[float]:
    """|E[gradient] − exact| with weights normalised within the batch: exact, by enumeration of how often each sequence
    is in the batch. At fixed length the last token has no say in a batch's weights, so one stands for all."""
    model, x = recurrent(space), all_sequences(space)
    scores = enumerated(model, x)
    q, chances = chances_of(scores, x), data_of(space)
    exact = exact_gradients(space, 2)[-1]
    kept = torch.arange(len(q))
    if space.end is None:
        q = q.view(-1, space.vocabulary).sum(1)
        kept = kept[:: space.vocabulary]
    found = []
    for size in sizes:
        bars = torch.tensor(list(itertools.combinations(range(size + len(q) - 1), len(q) - 1)))
        bars = torch.nn.functional.pad(torch.nn.functional.pad(bars, (1, 0), value=-1), (0, 1), value=size + len(q) - 1)
        counts = (bars.diff() - 1).double()
        log_chance = math.lgamma(size + 1) + (counts * q.log() - torch.lgamma(counts + 1)).sum(1)
        groups = len(counts)
        flat, every = kept.repeat(groups), torch.arange(len(chances)).repeat(groups)
        real = Tokens(TokenScores(*(each[every] for each in scores)), x.mask()[every], chances.repeat(groups))
        fake = Tokens(TokenScores(*(each[flat] for each in scores)), x.mask()[flat], counts.reshape(-1))
        terms = contrast(real, fake, groups=groups, variance_reduced=variance_reduced).terms
        mean = gradient(model, (log_chance.exp()[:, None] * terms).sum())
        found.append(float((mean - exact).norm()))
    return found


@REDUCED
@pytest.mark.parametrize(
    ("space", "sizes"), [(Space(2, 3), [8, 16, 32]), (Space(3, 2, end=2), [16, 32, 64])], ids=["fixed", "ending"]
)
def test_with_a_batchs_own_weights_the_bias_falls_as_one_over_its_size(space, sizes, variance_reduced):
    found = biases(space, sizes, variance_reduced)
    for first, second, bias, later in zip(sizes, sizes[1:], found, found[1:], strict=False):
        slope = math.log(later / bias) / math.log(second / first)
        assert -1.2 < slope < -0.8, (found, slope)
