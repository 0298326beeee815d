"""Every sampler on a gap-filling model tilted by a regular expression about the arranged text, against enumeration.

Chance: each of the 10 means of a case is compared at 7.5 standard errors of 40 independent repetitions (39 degrees of
freedom), which one of all cases exceeds once in 100,000 runs.
"""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.features.regular import Expression
from ebar.maths.orders import arranged
from ebar.models.construction import assemble
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.gaps import gaps_of
from ebar.samplers.guided import Guided
from ebar.samplers.guided_states import joint_states
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead, guided
from ebar.samplers.rejection import Rejection
from ebar.samplers.smc import Smc, twist_for
from ebar.samplers.surrogate import Law, NGram
from ebar.testing import check_stepwise
from ebar.types import Context, Sequences, Space, context_rows
from tests.models.any_order import AnyOrderTable, gaps, rows_of_gaps

REPEATS, DRAWS, SIGMAS = 40, 60, 7.5

ORDERS = {
    "a suffix": rows_of_gaps([([0, 1, None, None, None], None), ([1, None, None, None], None)]),
    "left to right": rows_of_gaps([([None, 1, None, 0, None, 1, 1], None), ([0, None, None, 0], None)]),
    "other orders": rows_of_gaps([([None, 1, None, 0, None, 1, 1], [1, 2, 0]), ([0, None, None, 0], [1, 0])]),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "resampling": {"proposals_per_draw": 4},
    "metropolis": {"chains": 30, "burn_in": 60, "thin": 5, "moves": ("suffix", "token")},
    "smc": {"particles": 16},
    "annealed": {"particles": 16},
}


def feature(absent: bool = False) -> Expression:
    return Expression("01(0|11)", alphabet="01", absent=absent)


def tilt(hard: bool) -> Linear:
    if hard:
        return Linear(Features([feature(absent=True)]), torch.tensor([-math.inf], dtype=torch.float64))
    return Linear(Features([feature()]), torch.tensor([1.5], dtype=torch.float64))


def xlnet() -> Any:
    torch.manual_seed(4)
    options = {"layers": 1, "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    model = assemble(Space(2, 4), "xlnet", options).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    return model


MODELS = {"table": lambda: AnyOrderTable(2, 4), "xlnet": xlnet}


def every_way(context: Context, row: int) -> tuple[Sequences, Any]:
    """All that can come in one row."""
    own: Any = context.select(torch.tensor([row]))
    count = int(own.coming)
    tokens = torch.tensor(list(itertools.product(range(2), repeat=count)))
    return Sequences(tokens, torch.full((len(tokens),), count)), own


@torch.no_grad()
def check(name: str, model: Any, energy: Linear, context: Context) -> None:
    kind: Any = SAMPLERS[name]
    target: Any = model if name == "ancestral" else Tilted(model, energy)
    sampler = kind(**SETTINGS.get(name, {}), batch_size=2**16)
    drawn = draw(sampler, target, DRAWS, context=context.repeat(REPEATS), generator=Generator().manual_seed(11))
    for row in range(context.rows):
        x, own = every_way(context, row)
        present = feature()(arranged(x, own))
        gain = 1.5 * present if float(energy.coefficients) > 0 else torch.where(present == 1, 0.0, -math.inf)
        scores = (model.log_prob(x, own) + (0.0 if name == "ancestral" else gain)).exp()
        signs = torch.randint(0, 2, (8, len(scores)), generator=Generator().manual_seed(row)).double() * 2 - 1
        assert 0 < float(present.mean()) < 1
        functions = torch.cat([torch.ones(1, len(scores)).double(), present[None], signs])
        wanted = functions @ scores
        some = slice(row * REPEATS * DRAWS, (row + 1) * REPEATS * DRAWS)
        own_draws = drawn.x.select(some)
        assert (own_draws.lengths == int(own.coming)).all()
        number = (own_draws.tokens[:, : x.tokens.shape[1]] * 2 ** torch.arange(x.tokens.shape[1]).flip(0)).sum(1)
        weights = drawn.log_weights[row * REPEATS : (row + 1) * REPEATS].double().exp()
        values = functions[:, number].view(-1, REPEATS, DRAWS) * weights
        if sampler.weighted:
            means = values.mean(2)
        else:
            means, wanted = values.sum(2) / weights.sum(1), wanted / wanted[0]
        error = means.std(1) / math.sqrt(REPEATS)
        slack = 1e-9 if sampler.weighted else 0.05
        assert ((means.mean(1) - wanted).abs() <= SIGMAS * error + slack).all(), (means.mean(1), wanted, error)


@pytest.mark.parametrize("how", ["soft", "hard"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_fills_gaps_as_enumeration_says_or_refuses_the_order(name, order, how):
    model, energy = AnyOrderTable(2, 4), tilt(how == "hard")
    if name == "look_ahead" and order == "other orders":
        with pytest.raises(UserError, match="from left to right, and row 0 of the order fills its gaps otherwise"):
            check(name, model, energy, ORDERS[order])
        return
    check(name, model, energy, ORDERS[order])


@pytest.mark.parametrize("name", ["importance", "smc", "metropolis", "look_ahead"])
def test_so_does_a_sampler_of_xlnet(name):
    check(name, xlnet(), tilt(hard=True), ORDERS["left to right"])


# Look-ahead over gaps.
def exact_law(model: AnyOrderTable, states: Any) -> Law:
    """That of a base whose tokens are independent of one another and of the place."""
    probabilities = torch.softmax(torch.tanh(model.alone[0]), 0)
    return Law(torch.zeros(0, len(states.recent)).double(), probabilities.expand(len(states.recent), -1))


@torch.no_grad()
def independent() -> AnyOrderTable:
    """Each token is 0 with one probability, whatever stands elsewhere."""
    model = AnyOrderTable(2, 4)
    model.influence.zero_()
    model.alone.copy_(torch.tensor([0.3, -0.4]).double().expand_as(model.alone))
    return model


@pytest.mark.parametrize("hard", [False, True])
@torch.no_grad()
def test_weights_are_constant_and_equal_to_z_where_the_surrogate_is_the_base(hard):
    """Given tokens before, between and after the gaps are all in h: with one left out the weights would vary."""
    model, energy, context = independent(), tilt(hard), ORDERS["left to right"]
    states = joint_states(energy, model.space.after(context), order=0, device=torch.device("cpu"), reach=7)
    proposal = Guided.tilted(model, states, energy, exact_law(model, states))
    walk = proposal.walk(200, context, generator=Generator().manual_seed(1))
    target = Tilted(model, energy)
    weights = (target.log_score(walk.x, context) - walk.log_prob).view(2, 200)
    for row in range(2):
        x, own = every_way(context, row)
        log_z = target.log_score(x, own).logsumexp(0)
        assert torch.allclose(weights[row], log_z.expand(200), atol=1e-9)
        _, state = proposal.start(1, own)
        assert torch.allclose(proposal.expected_log_weight(state), log_z, atol=1e-9)


@torch.no_grad()
def test_the_proposal_for_gaps_keeps_the_laws_of_a_stepwise_model():
    target = Tilted(AnyOrderTable(2, 4), tilt(hard=False))
    context = ORDERS["left to right"]
    proposal = guided(target, draws=200, context=context, generator=Generator().manual_seed(2))
    check_stepwise(proposal, context)
    check_stepwise(proposal, context.select(torch.tensor([1])))
    check_stepwise(proposal, context.repeat(2))


@torch.no_grad()
def test_looking_ahead_draws_what_the_base_seldom_does():
    """An expression that needs each of 6 tokens between given ones: one draw of the base in 64 or so has any weight."""
    model = AnyOrderTable(2, 6, places=14, seed=1)
    model.influence.mul_(0.05)
    model.alone.mul_(0.05)
    context = gaps([None, 1, None, 0, None, 0, None, 1, None, 0, None, 1])
    wanted = Expression("110000110001", alphabet="01", absent=True)
    energy = Linear(Features([wanted]), torch.tensor([-math.inf]).double())
    target, size = Tilted(model, energy), {}
    for name, sampler in (("base", Importance()), ("ahead", LookAhead())):
        drawn = draw(sampler, target, 2000, context=context, generator=Generator().manual_seed(3))
        weights = drawn.log_weights[0].exp()
        size[name] = float(weights.sum() ** 2 / (weights**2).sum()) / 2000
    assert size["base"] < 0.05
    assert size["ahead"] > 0.7


def test_gaps_of_the_same_layout_share_their_tables():
    energy = tilt(hard=False)
    states = joint_states(energy, Space(2, 4), order=0, device=torch.device("cpu"), reach=8)
    context = rows_of_gaps(
        [([0, 1, None, 1, None], None), ([1, 0, 0, None, 1, None], None), ([0, None, 0, None], None)]
    )
    found = gaps_of(states, context)
    assert found.layout.tolist() == [0, 0, 1]
    assert found.layouts == [((1,), ()), ((0,), ())]
    automaton = feature().automaton
    wanted = [automaton.start] * 3
    for row, text in enumerate(([0, 1], [1, 0, 0], [0])):
        for token in text:
            wanted[row] = int(automaton.table[wanted[row], token])
    assert (states.accepted[0][found.start] == automaton.accepting[torch.tensor(wanted)]).all()


def test_gaps_that_nothing_can_fill_are_refused_by_their_row():
    target = Tilted(AnyOrderTable(2, 4), tilt(hard=True))
    context = rows_of_gaps([([0, None, None, 0], None), ([1, None, 1, 1], None)])
    with pytest.raises(UserError, match="fill the gaps of row 1"):
        draw(LookAhead(), target, 5, context=context, generator=Generator().manual_seed(0))


def test_a_proposal_is_refused_texts_longer_than_it_was_made_for():
    target = Tilted(AnyOrderTable(2, 4), tilt(hard=False))
    proposal = guided(target, draws=50, context=gaps([1, None, 0, None]), generator=Generator().manual_seed(0))
    with pytest.raises(UserError, match="texts of up to 4 tokens with 2 to come"):
        proposal.start(1, gaps([1, None, 0, 1, None]))
    with pytest.raises(UserError, match="needs a bound"):
        draw(Rejection(), target, 5, proposal=proposal, context=gaps([1, None, 0, None]), generator=Generator())


# Sequential Monte Carlo.
def test_smc_has_no_twist_under_orders_that_are_not_from_left_to_right():
    base: Any = AnyOrderTable(2, 4)
    target = Tilted(base, tilt(hard=False))
    assert twist_for(None, target, base, ORDERS["other orders"]) == "none"
    assert twist_for(None, target, base, ORDERS["left to right"]) == "energy"
    assert twist_for("energy", target, base, ORDERS["other orders"]) == "energy"


@torch.no_grad()
def test_smc_with_a_proposal_that_looks_ahead_has_its_potential_and_stays_exact():
    target, context = Tilted(AnyOrderTable(2, 4), tilt(hard=True)), ORDERS["left to right"]
    proposal = guided(
        target, draws=300, surrogate=NGram(order=2), context=context, generator=Generator().manual_seed(5)
    )
    many = context.repeat(REPEATS)
    drawn = draw(Smc(particles=8), target, 40, proposal=proposal, context=many, generator=Generator().manual_seed(6))
    z = drawn.log_weights.exp().mean(1).view(context_rows(context), REPEATS)
    for row in range(2):
        x, own = every_way(context, row)
        wanted: Tensor = target.log_score(x, own).exp().sum()
        assert (z[row].mean() - wanted).abs() <= SIGMAS * z[row].std() / math.sqrt(REPEATS) + 1e-9
