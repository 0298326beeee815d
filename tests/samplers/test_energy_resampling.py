"""Candidates chosen by the model's own energy tend to the law that enumeration gives."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.lstm import Lstm
from ebar.energies.linear import OwnLogits, Reading
from ebar.errors import UserError
from ebar.estimators.log_z import log_z
from ebar.heads.softmax import Softmax
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import token_log_probs
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.importance import Resampling
from ebar.samplers.joint import energy_resampling
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space
from tests.samplers.worlds import codes

ENDING, FIXED = Space(3, 4, 0), Space(3, 3)
SPACES = pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
READINGS = pytest.mark.parametrize("reading", ["lse", "last_logit"])


def raw_logit(model: Tabular, prefix: list[int], condition: int = 0) -> Tensor:
    """The table's row for a prefix, found without the model's own code."""
    number = 0
    for token in prefix:
        number = number * model.space.vocabulary + token
    shorter = sum(model.space.vocabulary**place for place in range(len(prefix)))
    row = model.logits.detach()[condition, shorter + number].clone()
    if model.space.end is not None and len(prefix) == model.space.length - 1:
        row[[token for token in range(model.space.vocabulary) if token != model.space.end]] = -math.inf
    return row


def target(model: Tabular, reading: Reading, condition: int = 0) -> Tensor:
    """The law aimed at, over the whole space, token by token from the table.

    `lse`: q(x_<k)·exp(logit of x_k), equation 5 of Wang et al. 2022. `last_logit`: q(x)·exp(logit of x_k).
    """
    everything = all_sequences(model.space)
    found = []
    for row in range(len(everything.lengths)):
        tokens, log_weight = everything.prefix(row), 0.0
        for place, token in enumerate(tokens):
            logits = raw_logit(model, tokens[:place], condition)
            last = place == len(tokens) - 1
            if not last or reading == "last_logit":
                log_weight += float(torch.log_softmax(logits, 0)[token])
            if last:
                log_weight += float(logits[token])
        found.append(log_weight)
    return torch.softmax(torch.tensor(found, dtype=torch.float64), 0)


def law(x: Sequences, weights: Tensor, space: Space) -> Tensor:
    """The share of the weights that each sequence of the space has."""
    strings = sum(space.vocabulary**length for length in range(space.length + 1))
    shares = torch.bincount(codes(x, space), weights.flatten().double(), minlength=strings)
    return shares[codes(all_sequences(space), space)] / weights.sum()


def chi_squared(counts: Tensor, expected: Tensor) -> float:
    """Cells where fewer than 5 are expected are taken together."""
    rare = expected < 5
    pooled = [torch.cat([part[~rare], part[rare].sum()[None]]) for part in (counts, expected)]
    return float(((pooled[0] - pooled[1]) ** 2 / pooled[1].clamp(min=1)).sum())


def repeated(rows: int, condition: int = 0) -> Context:
    return Context(Sequences(torch.full((rows, 1), condition), torch.ones(rows, dtype=torch.long)))


@READINGS
@SPACES
def test_the_tilted_model_is_the_law_aimed_at(space: Space, reading: Reading, generator: Generator) -> None:
    model = Tabular.random(space, conditions=2, scale=2.0, generator=generator)
    context = Context(Sequences(torch.tensor([[1], [0]]), torch.tensor([1, 1])))
    tilted = Tilted(model, OwnLogits(model, reading))
    found = torch.softmax(tilted.log_score(whole_space(space, context), context).detach().view(2, -1), 1)
    torch.testing.assert_close(found[0], target(model, reading, 1))
    torch.testing.assert_close(found[1], target(model, reading, 0))
    # They are different laws, and neither is the model's own.
    own = model.log_prob(whole_space(space)).detach().exp()
    assert float((found[1] - own).abs().sum()) > 0.05
    assert float((target(model, "lse") - target(model, "last_logit")).abs().sum()) > 0.05


@READINGS
def test_the_energy_of_an_lstm_is_its_last_logits(reading: Reading, generator: Generator) -> None:
    torch.manual_seed(0)
    model = Autoregressive(Lstm(5, layers=1, hidden=8), Softmax(8, 5), Space(5, 6, 4)).double().eval()
    context = Context(Sequences(torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.tensor([3, 1])))
    x = model.sample(4, context, generator=generator)
    energy = OwnLogits(model, reading)(x, context).detach()
    with torch.no_grad():
        torch.testing.assert_close(energy, OwnLogits(model, reading)(x, context))
        log_probs = token_log_probs(model, x, context)
        for row in range(8):
            last = int(x.lengths[row]) - 1
            logits, state = model.start(1, context.select(torch.tensor([row // 4])))
            if last > 0:
                logits = model.advance(x.tokens[row : row + 1, :last], state)[0][:, -1]
            lse, logit = logits.logsumexp(1), logits[0, x.tokens[row, last]]
            torch.testing.assert_close(-energy[row : row + 1], lse if reading == "lse" else logit[None])
            torch.testing.assert_close(logit - lse[0], log_probs[row, last])


@READINGS
@SPACES
def test_distinct_candidates_at_full_width_have_exactly_the_right_weights(
    space: Space, reading: Reading, generator: Generator
) -> None:
    model = Tabular.random(space, scale=2.0, generator=generator)
    found = energy_resampling(model, n=50_000, candidates=60, weights=reading, distinct=True, generator=generator)
    expected = target(model, reading)
    weights = torch.softmax(found.candidates.log_weights[:1], 1)
    one = Sequences(found.candidates.x.tokens[:60], found.candidates.x.lengths[:60])
    torch.testing.assert_close(law(one, weights, space), expected)
    # The draws follow the weights: χ² of at most 26 degrees of freedom, false alarms once in 10⁵ seeds.
    counts = law(found.x, torch.ones(50_000), space) * 50_000
    assert chi_squared(counts, 50_000 * expected) < 75


@READINGS
@SPACES
def test_the_law_converges_to_the_exact_one_as_candidates_grow(
    space: Space, reading: Reading, generator: Generator
) -> None:
    """Total variation falls about as 1/K, the bias of self-normalised weights."""
    model = Tabular.random(space, scale=1.0, generator=generator)
    expected = target(model, reading)
    distances = []
    for candidates, rows in ((1, 60_000), (4, 30_000), (16, 10_000), (64, 4_000)):
        found = energy_resampling(
            model, repeated(rows), candidates=candidates, weights=reading, batch=10_000, generator=generator
        )
        shares = torch.softmax(found.candidates.log_weights, 1)
        distances.append(float((law(found.candidates.x, shares, space) - expected).abs().sum()) / 2)
        drawn = law(found.x, torch.ones(rows), space)
        # Draws against the weights they are drawn by: 27 outcomes from 4,000 draws are off by 0.03 on average.
        assert float((drawn - law(found.candidates.x, shares, space)).abs().sum()) / 2 < 0.07
    assert distances[0] > 0.05  # one candidate is a draw from the model itself
    assert distances[0] > 1.3 * distances[1]
    assert distances[1] > 2 * distances[2]
    assert distances[3] < 0.015


def test_the_law_for_two_candidates_is_the_one_worked_out_by_summing_over_all_pairs(generator: Generator) -> None:
    model = Tabular.random(FIXED, scale=1.5, generator=generator)
    everything = all_sequences(FIXED)
    q = model.log_prob(everything).detach().exp()
    weight = (-OwnLogits(model)(everything)).detach().exp()
    share = weight[:, None] / (weight[:, None] + weight[None])
    expected = 2 * (q[:, None] * q[None] * share).sum(1)
    found = energy_resampling(model, repeated(60_000), candidates=2, batch=20_000, generator=generator)
    counts = law(found.x, torch.ones(60_000), FIXED) * 60_000
    assert chi_squared(counts, 60_000 * expected) < 75  # 26 degrees of freedom: once in 10⁵ seeds


def test_it_is_also_a_tilted_model_for_any_sampler(generator: Generator) -> None:
    model = Tabular.random(ENDING, scale=2.0, generator=generator)
    tilted = Tilted(model, OwnLogits(model))
    found = draw(Resampling(), tilted, 4000, generator=generator)
    expected = target(model, "lse")
    assert float((law(found.x, found.log_weights.exp(), ENDING) - expected).abs().sum()) / 2 < 0.05
    exact = float(torch.logsumexp(tilted.log_score(all_sequences(ENDING)).detach(), 0))
    batches = [draw(Resampling(), tilted, 200, generator=generator) for _ in range(40)]
    estimate = log_z(batches)[0].estimate
    assert estimate.low - 0.1 < exact < estimate.high + 0.1


def test_several_contexts_keep_their_order_and_several_draws_their_context(generator: Generator) -> None:
    model = Tabular.random(ENDING, conditions=3, scale=2.0, generator=generator)
    context = Context(Sequences(torch.tensor([[2, 0], [0, 0], [1, 0]]), torch.tensor([2, 1, 1])))
    found = energy_resampling(model, context, n=2, candidates=3, batch=1, generator=generator)
    assert found.candidates.log_weights.shape == (3, 3)
    energies = OwnLogits(model)(found.candidates.x, context).detach().view(3, 3)
    torch.testing.assert_close(found.candidates.log_weights, -energies)
    for row in range(3):
        candidates = [found.candidates.x.prefix(3 * row + k) for k in range(3)]
        assert all(found.x.prefix(2 * row + k) in candidates for k in range(2))


def test_weights_that_one_candidate_decides_are_told(generator: Generator) -> None:
    even = energy_resampling(Tabular.random(ENDING, scale=0.1, generator=generator), generator=generator)
    assert even.warning is None
    assert float(even.effective_sample_size) > 9
    steep = Tabular.random(ENDING, scale=50.0, generator=generator)
    found = energy_resampling(steep, repeated(5), distinct=True, generator=generator)
    assert "one alone decides" in str(found.warning)


def test_a_truncated_proposal_gives_its_own_support(generator: Generator) -> None:
    model = Tabular.random(FIXED, scale=1.0, generator=generator)
    cut = model.truncated(top_k=1)
    found = energy_resampling(model, candidates=5, proposal=cut, generator=generator)
    assert float(cut.log_prob(found.x).detach()) == 0.0
    with pytest.raises(UserError, match="log-sum-exp is 0"):
        OwnLogits(cut)
    with pytest.raises(UserError, match="leave the proposal out"):
        energy_resampling(model, proposal=cut, distinct=True, generator=generator)
    with pytest.raises(UserError, match="At least one"):
        energy_resampling(model, candidates=0, generator=generator)
