"""Transition matrices known exactly: every move leaves q·w^power invariant, by detailed balance."""

import math
from functools import partial

import pytest
import torch
from torch import Generator, Tensor

from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import Setting, Walkers, walkers_at
from ebar.samplers.metropolis import MOVES, step
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space
from tests.samplers.tracing import TracedTabular, Tracer, traced
from tests.samplers.worlds import Rugged, World

SMALL = {"ending": Space(vocabulary=3, length=3, end=0), "fixed": Space(vocabulary=2, length=3)}


@pytest.fixture
def tracer(monkeypatch):
    return traced(monkeypatch)


def small_world(space: Space, tracer: Tracer, *, impossible: bool = False) -> World:
    generator = Generator().manual_seed(3)
    base = TracedTabular.random(space, conditions=2, generator=generator)
    other = TracedTabular.random(space, conditions=2, generator=generator)
    if impossible:  # after the token 1, the token 1 never comes
        with torch.no_grad():
            base.logits[:, 2, 1] = -math.inf
        other = base
    for model in (base, other):
        assert isinstance(model, TracedTabular)
        model.traced_by(tracer)
    return World(Tilted(base, Rugged(space, 2, 0.8, generator)), other, 2)


def transition_matrix(
    move: str, small: World, proposal: Tabular, tracer: Tracer, context: Context, power: float
) -> Tensor:
    scene = Setting(small.target, proposal, context, Generator())
    everything = whole_space(small.space)
    matrix = torch.zeros(len(everything.lengths), len(everything.lengths), dtype=torch.float64)
    for row in range(len(everything.lengths)):
        x = everything.select(torch.tensor([row]))
        log_q = proposal.log_prob(x, context).detach()
        if float(log_q) == -math.inf:
            continue
        wide = Sequences(torch.nn.functional.pad(x.tokens, (0, small.space.length - x.tokens.shape[1])), x.lengths)
        walkers = walkers_at(scene, wide, log_q)
        run = partial(step, walkers, MOVES[move], scene, power)
        for probability, (there, _) in tracer.every_path(run):
            matrix[row, int(small.index(there.x))] += probability
    return matrix


@pytest.mark.parametrize("space", SMALL)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("proposal", ["other", "impossible"])
def test_every_move_is_in_detailed_balance_with_the_target(space, move, proposal, tracer):
    small = small_world(SMALL[space], tracer, impossible=proposal == "impossible")
    context = small.context(1).select(torch.tensor([1]))
    q = small.other if proposal == "other" else small.target.base
    assert isinstance(q, Tabular)
    p = small.scores(context)[0]
    matrix = transition_matrix(move, small, q, tracer, context, 1.0)
    flow = p[:, None] * matrix
    torch.testing.assert_close(matrix.sum(1)[p > 0], torch.ones_like(p)[p > 0], atol=1e-12, rtol=0)
    torch.testing.assert_close(flow, flow.T, atol=1e-12, rtol=0)
    torch.testing.assert_close(p @ matrix, p, atol=1e-12, rtol=0)
    assert float(matrix.diagonal()[p > 0].min()) < 0.9  # it does move


@pytest.mark.parametrize("move", ["suffix", "token"])
def test_a_power_of_the_weight_is_what_a_tempered_move_leaves_invariant(move, tracer):
    small = small_world(SMALL["ending"], tracer)
    context = small.context(1).select(torch.tensor([0]))
    q = small.other.log_prob(whole_space(small.space), context).exp()
    tempered = (q * (small.scores(context)[0] / q) ** 0.3).detach()
    matrix = transition_matrix(move, small, small.other, tracer, context, 0.3)
    flow = tempered[:, None] * matrix
    torch.testing.assert_close(flow, flow.T, atol=1e-12, rtol=0)


@pytest.mark.parametrize("space", SMALL)
def test_suffix_moves_reach_every_sequence_and_token_moves_only_those_of_the_same_length(space, tracer):
    small = small_world(SMALL[space], tracer)
    context = small.context(1).select(torch.tensor([0]))
    assert isinstance(small.target.base, Tabular)
    suffix = transition_matrix("suffix", small, small.target.base, tracer, context, 1.0)
    assert bool((suffix > 0).all())
    token = transition_matrix("token", small, small.target.base, tracer, context, 1.0)
    lengths = whole_space(small.space).lengths
    assert not bool((token > 0)[lengths[:, None] != lengths].any())
    reached = torch.linalg.matrix_power(token, small.space.length) > 0
    assert bool(reached[lengths[:, None] == lengths].all())


def test_the_suffix_move_divides_by_the_length_it_leaves_and_multiplies_by_the_one_it_reaches(tracer):
    """By hand: q flat over «end» (½) and «a end» (½), P = q. From «end» the cut is at 0; «a end» is drawn with ½ and
    accepted with 1·|x|/|x′| = ½: ¼ in all. Back, cutting at 0 (½) draws «end» with ½, accepted always: ¼."""
    space = Space(vocabulary=2, length=2, end=0)
    base = TracedTabular(space, torch.zeros(1, 3, 2, dtype=torch.float64)).traced_by(tracer)
    flat = Rugged(space, 1, 0.0, Generator())
    context = Context(Sequences(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long)))
    matrix = transition_matrix("suffix", World(Tilted(base, flat), base, 1), base, tracer, context, 1.0)
    torch.testing.assert_close(matrix, torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64))


def test_a_walker_where_the_target_is_zero_takes_any_move(generator):
    space = Space(vocabulary=2, length=2)
    base = Tabular.random(space, generator=generator)

    def only_ones(x: Sequences, context: Context | None = None) -> Tensor:
        return torch.where(x.tokens.sum(1) == 2, 0.0, math.inf).double()

    scene = Setting(Tilted(base, only_ones), base, None, generator)
    x = Sequences(torch.zeros(500, 2, dtype=torch.long), torch.full((500,), 2))
    walkers: Walkers = walkers_at(scene, x, base.log_prob(x).detach())
    walkers, accepted = step(walkers, MOVES["independent"], scene)
    assert bool(accepted.all())
    for _ in range(200):
        walkers, _ = step(walkers, MOVES["suffix"], scene)
    assert bool((walkers.x.tokens == 1).all())
