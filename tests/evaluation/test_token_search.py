"""A search without q finds what the energy likes and nobody would write: by hand, and by enumeration."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.evaluation.token_search import Scores, TokenSearch, random_tokens, scores_of, search
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.types import Context, Sequences, Space

SPACE = Space(4, 3)


class Table(nn.Module):
    """E = Σ over places of a cost of the token there, and of the context's first token."""

    def __init__(self, costs: Tensor):
        super().__init__()
        self.costs = costs
        self.calls = 0

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        assert not self.training
        self.calls += 1
        places = torch.arange(x.tokens.shape[1]).expand_as(x.tokens)
        found = torch.where(x.mask(), self.costs[places, x.tokens], 0.0).sum(1)
        if context is None:
            return found
        each = len(x.lengths) // context.rows
        return found * (1 - 2 * context.given.tokens[:, 0].repeat_interleave(each).to(found))


COSTS = torch.tensor([[0.0, 1, 2, -3], [5.0, 0, -1, 0], [0.5, 0, 0, -0.5]], dtype=torch.float64)


def uniform() -> Tabular:
    """Each of 4 tokens is ¼."""
    return Tabular(SPACE, torch.zeros(1, 21, 4, dtype=torch.float64))


def test_it_finds_the_lowest_energy_there_is(generator: Generator) -> None:
    q, energy = Tabular.random(SPACE, generator=generator), Table(COSTS)
    start = q.sample(50, generator=generator)
    energy.train()
    found = search(energy, q, start, how=TokenSearch(steps=60, candidates=4), generator=generator)
    assert energy.training  # as it was
    everything = all_sequences(SPACE)
    with torch.no_grad():
        best = everything.tokens[int(energy.eval()(everything).argmin())]
    assert best.tolist() == [3, 2, 3]
    # A place is not visited in 60 steps with chance (2/3)⁶⁰, the token not among 4 tried with (3/4)⁴ at each visit:
    # 1 − 0.228 at each step a third of the time, so 150 (text, place) pairs fail together once in 5,000 runs.
    assert bool((found.x.tokens == best).all())
    assert found.found.energy.tolist() == pytest.approx([-4.5] * 50)
    assert found.path[0] == pytest.approx(float(found.start.energy.mean()))
    assert found.path[-1] == pytest.approx(-4.5)
    assert found.path == sorted(found.path, reverse=True)
    with torch.no_grad():
        assert found.start.log_q.tolist() == q.log_prob(start).tolist()
        assert found.found.log_q.tolist() == q.log_prob(found.x).tolist()
    assert start.tokens.shape == (50, 3)


def test_scores_by_hand() -> None:
    x = Sequences(torch.tensor([[0, 1, 1], [3, 2, 3]]), torch.tensor([3, 3]))
    found = scores_of(Table(COSTS).eval(), uniform(), x, batch=1)
    assert found.energy.tolist() == [0.0, -4.5]
    assert found.log_q.tolist() == pytest.approx([-3 * math.log(4)] * 2)
    assert found.mean_energy().value == -2.25
    assert found.log_q_per_token().value == pytest.approx(-math.log(4))
    assert found.taken_for_real().value == 0.5  # an energy of 0 is not below 0
    impossible = Scores(found.energy, torch.tensor([-3.0, -math.inf]), found.lengths).log_q_per_token()
    assert impossible.value == -math.inf
    assert "1 of 2 texts no probability" in str(impossible.warning)


def test_each_text_has_its_own_context(generator: Generator) -> None:
    # Condition 1 turns the energy round.
    context = Context(Sequences(torch.tensor([[0], [1]]), torch.tensor([1, 1])))
    q = Tabular.random(SPACE, conditions=2, generator=generator)
    how = TokenSearch(steps=80, candidates=6, batch=5)
    x = q.sample(1, context, generator=generator)
    found = search(Table(COSTS), q, x, context, how=how, data=x, generator=generator)
    assert found.found.energy.tolist() == pytest.approx([-4.5, -7.5])
    assert found.x.tokens[0].tolist() == [3, 2, 3]
    assert found.x.tokens[1].tolist() == [2, 0, 0]
    assert [row[0] for row in found.rows()] == ["data", "start", "found"]
    assert found.data is not None
    assert found.data.energy.tolist() == found.start.energy.tolist()
    with pytest.raises(UserError, match="as many contexts, not 2"):
        search(Table(COSTS), q, q.sample(3, generator=generator), context, generator=generator)


def test_the_same_generator_finds_the_same(generator: Generator) -> None:
    start = random_tokens(SPACE, 9, generator=generator)
    found = [
        search(Table(COSTS), uniform(), start, how=TokenSearch(steps=4, candidates=2, batch=size),
               generator=Generator().manual_seed(7)) for size in (2, 512)
    ]  # fmt: skip
    assert found[0].x.tokens.tolist() == found[1].x.tokens.tolist()
    assert found[0].path == found[1].path
    # One place in each step: after four no more than four tokens differ, and each change was for the better.
    assert bool((found[0].found.energy <= found[0].start.energy).all())
    assert search(Table(COSTS), uniform(), start, how=TokenSearch(steps=0), generator=generator).x == start


def test_ends_and_lengths_stay(generator: Generator) -> None:
    space = Space(4, 3, end=1)
    x = Sequences(torch.tensor([[1, 0, 0], [0, 1, 2], [2, 3, 1]]), torch.tensor([1, 2, 3]))
    # The cheapest token would be the end everywhere.
    costs = torch.tensor([[0.0, -9, 0, 0]] * 3, dtype=torch.float64) - torch.tensor([0.0, 0, 0, 1])
    q = Tabular.random(space, generator=generator)
    found = search(Table(costs), q, x, how=TokenSearch(steps=80), generator=generator)
    assert [found.x.prefix(row) for row in range(3)] == [[1], [3, 1], [3, 3, 1]]
    drawn = random_tokens(space, 400, generator=generator)
    assert drawn.tokens[:, -1].tolist() == [1] * 400
    assert set(drawn.tokens[:, :-1].flatten().tolist()) == {0, 2, 3}
    assert set(random_tokens(SPACE, 400, generator=generator).tokens.flatten().tolist()) == {0, 1, 2, 3}


def test_what_a_discriminator_likes_best_is_nothing_q_would_write(generator: Generator) -> None:
    # Data: 0 and 1 in turn. q: mostly that. The energy rewards each 0, none of the others was ever seen by it: text of
    # nothing but 0 has a lower energy than all data, and q knows that nobody writes so.
    space = Space(4, 6)
    logits = torch.full((1, sum(4**place for place in range(6)), 4), -4.0, dtype=torch.float64)
    first = 0
    for place in range(6):
        logits[:, first : first + 4**place, place % 2] = 4.0
        first += 4**place
    q = Tabular(space, logits)
    data = Sequences(torch.tensor([[0, 1] * 3] * 40), torch.full((40,), 6))
    energy = Table(torch.tensor([[-1.0, 0, 0, 0]] * 6, dtype=torch.float64))
    start = random_tokens(space, 40, generator=generator)
    found = search(energy, q, start, data=data, how=TokenSearch(steps=100), generator=generator)
    assert found.data is not None
    assert found.found.mean_energy().high < found.data.mean_energy().low
    assert found.found.log_q_per_token().high < found.data.log_q_per_token().low - 3
