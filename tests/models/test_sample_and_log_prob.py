"""What is drawn and what it is said to be worth, under every truncation."""

import math
from typing import Any

import pytest
import torch

from ebar.models.stepwise import ancestral_by_token, token_log_probs
from ebar.modes import evaluation_mode
from ebar.testing.enumeration import whole_space
from ebar.types import context_rows
from tests.models.examples import MODELS, SPACES, model_of, three_contexts

TRUNCATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 2.5},
    "top-k": {"top_k": 2},
    "top-p": {"top_p": 0.7},
    "length": {"length": 3},
    "all": {"temperature": 1.3, "top_k": 2, "top_p": 0.8, "length": 3},
    "greedy": {"top_k": 1},
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_sample_and_log_prob_agree_per_token(kind, space, conditional, truncation, generator):
    context = three_contexts() if conditional else None
    for dtype in (torch.float32, torch.float64):
        whole = model_of(kind, SPACES[space], dtype, generator)
        model = whole.truncated(**TRUNCATIONS[truncation]) if truncation != "none" else whole
        with evaluation_mode(model):
            x, drawn = ancestral_by_token(model, 100, context, generator=generator)
        assert x.tokens.shape[0] == 100 * context_rows(context)
        assert drawn.dtype == dtype
        scored = token_log_probs(model, x, context)
        assert bool(scored.isfinite().all())
        torch.testing.assert_close(drawn, scored, rtol=0, atol=TOLERANCE[dtype])
        torch.testing.assert_close(model.log_prob(x, context), drawn.sum(1), rtol=0, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@torch.no_grad()
def test_probabilities_of_the_whole_space_add_up_to_one(kind, space, conditional, truncation, generator):
    context = three_contexts() if conditional else None
    model = model_of(kind, SPACES[space], torch.float64, generator).truncated(**TRUNCATIONS[truncation])
    log_probs = model.log_prob(whole_space(model.space, context), context).reshape(context_rows(context), -1)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(log_probs), dtype=torch.float64))


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_draws_are_as_frequent_as_their_probabilities_say(kind, generator):
    """Pearson's statistic over the whole space against its mean plus 6 standard deviations, on 20,000 draws.

    A χ² of 40 or so degrees of freedom exceeds that about once in 3·10⁶ runs.
    """
    model = model_of(kind, SPACES["ending"], torch.float32, generator)
    everything = whole_space(model.space)
    probability = model.log_prob(everything).exp().double()
    x = model.sample(20_000, generator=generator)
    number = {tuple(everything.prefix(row)): row for row in range(len(probability))}
    seen = torch.tensor([number[tuple(x.prefix(row))] for row in range(20_000)])
    counts = torch.bincount(seen, minlength=len(probability))
    common = probability * 20_000 > 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    wanted = 20_000 * torch.cat([probability[common], probability[~common].sum()[None]])
    freedom = int(common.sum())
    statistic = float(((observed - wanted) ** 2 / wanted.clamp(min=1)).sum())
    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 10


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_draws_in_several_blocks_are_context_major(kind, generator, monkeypatch):
    for part in ("drawing", "stepwise"):
        monkeypatch.setattr(f"ebar.models.{part}.BLOCK", 7)
    model = model_of(kind, SPACES["ending"], torch.float64, generator)
    context = three_contexts()
    x, log_q = model.sample_with_log_prob(10, context, generator=generator)
    assert len(x.lengths) == 30
    torch.testing.assert_close(model.log_prob(x, context), log_q)
    for row in range(3):  # the middle ten are worth the same under the middle context alone
        some = torch.arange(10 * row, 10 * row + 10)
        alone = model.log_prob(x.select(some), context.select(torch.tensor([row])))
        torch.testing.assert_close(alone, log_q[some])


def test_no_draws_are_an_empty_batch(generator):
    x, log_q = model_of("tabular", SPACES["ending"], torch.float64, generator).sample_with_log_prob(
        0, generator=generator
    )
    assert x.tokens.shape[0] == x.lengths.shape[0] == log_q.shape[0] == 0
