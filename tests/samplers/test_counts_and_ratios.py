"""Numbers on the way to a weight, by hand: proposals made, gains of a redraw, ratios of a prefix, rows of a law."""

import pytest
import torch
from torch import Generator, Tensor

from ebar.models.ngram import Tabular
from ebar.samplers import rejection
from ebar.samplers.annealed import Annealed
from ebar.samplers.draw import draw
from ebar.samplers.guided_states import joint_states
from ebar.samplers.metropolis import redraw
from ebar.samplers.rejection import Rejection
from ebar.samplers.smc import TWISTS, Prefixes, Smc
from ebar.samplers.surrogate import NGram, Tally
from ebar.types import Sequences, Space
from tests.samplers.worlds import ENDING, FIXED, ScriptedCoin, linear_world, world


def test_proposals_after_the_last_acceptance_are_not_counted(monkeypatch, generator):
    """Three refused, then in a batch of twelve the first three accepted and nine refused: k = 3, N = 6."""
    verdicts = [False] * 3 + [True] * 3 + [False] * 9
    coin = ScriptedCoin(verdicts)
    monkeypatch.setattr(rejection, "coin", coin)
    (part,) = Rejection(log_bound=30.0).attempts(world(FIXED).target, 3, generator=generator)
    assert coin.tossed == len(verdicts)
    assert (part.accepted.tolist(), part.proposed.tolist()) == ([3], [6])


def test_what_is_free_past_the_old_end_has_no_gain(generator):
    """From the sequence that is an end alone every draw's gain is that of its first token only."""
    base = Tabular.random(ENDING, generator=Generator().manual_seed(2)).requires_grad_(False)
    n = 40
    x = Sequences(torch.zeros(n, ENDING.length, dtype=torch.long), torch.ones(n, dtype=torch.long))
    free = torch.ones(n, ENDING.length, dtype=torch.bool)
    new = redraw(base, x, free, None, keep_length=False, generator=generator)
    assert int(new.x.lengths.max()) > 1
    first = torch.log_softmax(base.start(1)[0][0], 0)
    torch.testing.assert_close(new.log_gain, first[new.x.tokens[:, 0]] - first[0])


@pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
def test_a_prefix_comes_with_what_the_base_makes_of_it_over_what_the_proposal_does(space: Space, monkeypatch):
    small = world(space)
    base, other = small.target.base, small.other
    assert isinstance(base, Tabular)
    places = []

    def looking(prefixes: Prefixes) -> Tensor:
        for row in range(len(prefixes.x.lengths)):
            tokens = prefixes.x.prefix(row)
            ratio = log_prob_of_prefix(base, tokens) - log_prob_of_prefix(other, tokens)
            assert float(prefixes.log_ratio[row]) == pytest.approx(ratio, abs=1e-9)
        places.append(prefixes.x.tokens.shape[1])
        return prefixes.log_ratio

    monkeypatch.setitem(TWISTS, "none", looking)
    draw(Smc(twist="none", particles=8), small.target, 8, proposal=other, generator=Generator().manual_seed(4))
    assert len(places) >= 2


@torch.no_grad()
def log_prob_of_prefix(model: Tabular, tokens: list[int]) -> float:
    logits, state = model.start(1)
    total = 0.0
    for token in tokens:
        total += float(torch.log_softmax(logits, -1)[0, token])
        after, state = model.advance(torch.tensor([[token]]), state)
        logits = after[:, 0]
    return total


@pytest.mark.parametrize("smoothing", [0.3, 1.0, 4.0])
def test_the_rows_of_a_surrogate_sum_to_one(smoothing: float):
    small = linear_world(ENDING)
    states = joint_states(small.target.energy, ENDING, order=2, device=torch.device("cpu"))  # type: ignore[arg-type]
    tally = Tally.empty(states)
    tally.following.copy_(torch.rand(tally.following.shape, generator=Generator().manual_seed(1)) * 3)
    tally.visits.fill_(5.0)
    tally.ends.fill_(1.0)
    law = NGram(order=2, smoothing=smoothing).fit(states, tally)
    torch.testing.assert_close(law.following.sum(1), torch.ones(len(law.following), dtype=torch.float64))
    # Of five visits in each state and place one would end, and the mean over places is the same: ⅕, shrunk to itself.
    visits = 5.0 * law.end.shape[1]
    overall = (law.end.shape[0] * visits / 5 + 1) / (law.end.shape[0] * (visits + 1) + 1)
    shrunk = (visits / 5 + overall) / (visits + 1)
    assert float(law.end.min()) == pytest.approx((1 + smoothing * shrunk) / (5 + smoothing))


@pytest.mark.parametrize("sampler", [Smc(), Annealed()], ids=["smc", "annealed"])
def test_whole_systems_of_the_default_size_fill_a_batch(sampler: Smc | Annealed):
    assert sampler.batch_size % sampler.particles == 0
