"""A look-ahead that learns, against enumeration: whatever it has learnt, weights are exact."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.backbones.transformer import Transformer
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.maths.log_space import effective_sample_size
from ebar.models.construction import Autoregressive
from ebar.models.hidden import shows_hidden
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.models.truncated import Prompted, Truncated
from ebar.samplers.correction import Correction, Examples, Kept, Regression, Trace
from ebar.samplers.draw import draw
from ebar.samplers.guided import Guided
from ebar.samplers.guided_states import joint_states
from ebar.samplers.learning import Learning, open_places
from ebar.samplers.look_ahead import LookAhead, guided, learnt
from ebar.samplers.smc import Smc
from ebar.samplers.surrogate import Uniform
from ebar.testing.enumeration import whole_space
from ebar.training.randomness import seeded
from ebar.types import Context, Sequences, Space
from tests.samplers.test_look_ahead import CPU, ENDED, FIXED, SPACES, Ones, energy, everything, motif, two_motifs

QUICK = Learning(rounds=2, draws=300, regression=Regression(units=16, steps=100))


def network(space: Space, kind: type = Lstm) -> Autoregressive:
    seeded(3)
    backbone = kind(space.vocabulary, layers=1, hidden=8, **({"heads": 2} if kind is Transformer else {}))
    model = Autoregressive(backbone, Softmax(8, space.vocabulary), space).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0)
    return model.requires_grad_(False)


def misled(target: Tilted, generator: Generator, size: float = 5.0) -> Guided:
    """A proposal whose correction is random, and large."""
    first = guided(target, draws=100, generator=generator)
    vectors = shows_hidden(target.base).output_vectors
    correction = Correction(vectors, 8, len(first.states.features), units=16, generator=generator)
    last: Any = correction.network[-1]
    last.weight.data.copy_(size * torch.randn(last.weight.shape, generator=generator))
    return first.corrected(correction.requires_grad_(False), open_places(first, target))


@SPACES
@pytest.mark.parametrize("kind", [Lstm, Transformer], ids=["lstm", "transformer"])
def test_shown_logits_are_the_models_and_come_from_the_shown_vectors(space, kind, generator):
    model = network(space, kind)
    tokens = torch.randint(2, (3, 4), generator=generator)
    whole = Truncated(model, temperature=0.5)
    given = Context(Sequences(tokens[:1, :2], torch.tensor([2])))
    models: list[tuple[Any, float]] = [(model, 1.0), (whole, 2.0), (Prompted(model, given), 1.0)]
    bias = cast(Softmax, model.head).linear.bias
    for one, factor in models:
        logits, _ = one.start(3)
        shown, state = one.showing().start(3)
        torch.testing.assert_close(shown.logits, logits)
        torch.testing.assert_close(one.showing().start(1, None)[0][0].logits, logits[0])
        made = factor * (shown.hidden @ one.output_vectors.T + bias)
        torch.testing.assert_close(made, logits)
        after, _ = one.advance(tokens, one.start(3)[1])
        parallel, _ = one.showing().advance(tokens, state)
        torch.testing.assert_close(parallel.logits, after)
        stepper = one.showing().stepper(one.showing().start(3)[1])
        for place in range(2):
            stepped = stepper.step(tokens[:, place])
            torch.testing.assert_close(stepped.logits, after[:, place])
            torch.testing.assert_close(stepped.hidden, parallel.hidden[:, place])
        stepper.keep(torch.tensor([2]))
        torch.testing.assert_close(stepper.step(tokens[2:, 2]).logits, after[2:, 2])


def test_what_still_matters_is_known_by_hand():
    """Length 3, '11' wanted: after 1 1 it has come; after 0 0, or one token before the end without a 1, it cannot."""
    space = Space(2, 3)
    term = energy((motif(space, 1, 1), 2.0))
    states = joint_states(term, space, order=0, device=CPU)
    table = states.open(term)
    step = states.successor
    one = int(step[0, 1])
    both = int(step[one, 1])
    assert table[:, 0].tolist() == [True, True, False, False]  # two places are needed
    assert table[:, one].tolist() == [True, True, True, False]
    assert not table[:, both].any()
    assert states.open(energy((motif(space, 1, 1), 2.0), (Ones(), 1.0)))[:3].all()
    # A hard constraint that cannot be met any more leaves nothing open either.
    absent = energy((motif(space, 1, 1, absent=True), -math.inf))
    hard = joint_states(absent, space, order=0, device=CPU)
    assert hard.open(absent)[:, 0].tolist() == [True, True, False, False]


def test_with_an_end_stopping_is_one_of_the_things_that_may_follow():
    space = Space(3, 3, end=2)
    term = energy((motif(space, 1), 2.0))
    states = joint_states(term, space, order=0, device=CPU)
    # Two tokens and the end at most: before the last place only the end can come.
    assert states.open(term)[:, 0].tolist() == [True, True, False, False]


@SPACES
def test_any_correction_leaves_weights_exact(space, generator):
    target = Tilted(network(space), two_motifs(space))
    proposal = misled(target, generator)
    x = everything(proposal)
    log_g = proposal.log_prob(x)
    torch.testing.assert_close(log_g.exp().sum(), torch.tensor(1.0, dtype=torch.float64), rtol=1e-6, atol=0)
    plain = guided(target, draws=100, generator=generator).log_prob(x)
    assert float((plain - log_g).abs().max()) > 0.5  # it is not the proposal that it began with
    walk = proposal.walk(200, defensive=20, generator=generator)
    begun = Guided(proposal.base, proposal.states, proposal.log_ahead, proposal.log_final, proposal.law)
    laws = [proposal.log_prob(walk.x) + math.log(0.9 * 0.8), begun.log_prob(walk.x) + math.log(0.9 * 0.2)]
    laws.append(target.base.log_prob(walk.x) + math.log(0.1))
    torch.testing.assert_close(walk.log_prob, torch.logsumexp(torch.stack(laws), 0), rtol=0, atol=1e-5)


@SPACES
def test_prefix_weights_obey_their_law_and_steps_agree_with_the_parallel_pass(space, generator):
    target = Tilted(network(space), two_motifs(space))
    proposal = misled(target, generator)
    x = everything(proposal)
    log_g = proposal.log_prob(x)
    laws, log_weights = proposal.laws(x)
    for row in range(0, len(x.lengths), 7):
        prefix = x.tokens[row : row + 1, : int(x.lengths[row]) - 1]
        _, state = proposal.start(1)
        for column in prefix.unbind(1):
            _, state = proposal.advance(column[:, None], state)
        together = proposal.start(1)[1]
        if prefix.shape[1]:
            _, together = proposal.advance(prefix, together)
        one = x.select(torch.tensor([row]))
        expected = target.log_score(one) - log_g[row : row + 1] + 0.4 * Ones()(one)
        for found in (state, together.select(torch.tensor([0]))):
            torch.testing.assert_close(proposal.expected_log_weight(found), expected, rtol=0, atol=1e-4)
        last = int(x.lengths[row]) - 1
        torch.testing.assert_close(log_weights[row, last : last + 1], expected, rtol=0, atol=1e-4)
        chosen = laws[row, : last + 1].gather(1, one.tokens[0, : last + 1, None])
        torch.testing.assert_close(chosen.sum(), log_g[row], rtol=0, atol=1e-5)


@SPACES
@pytest.mark.parametrize("sampler", [LookAhead(), Smc(particles=64)], ids=["look_ahead", "smc"])
def test_the_mean_weight_is_z_whatever_was_learnt(space, sampler, generator):
    """4.5 standard errors over independent repetitions: one false alarm in 150,000 runs."""
    target = Tilted(network(space), two_motifs(space))
    z = target.log_score(whole_space(space)).exp().sum().detach()
    for proposal in (misled(target, generator, 1.0), learnt(target, learning=QUICK, draws=200, generator=generator)[0]):
        drawn = draw(sampler, target, 60 * 64, proposal=proposal, generator=generator)
        means = drawn.log_weights.double().exp().view(60, -1).mean(1)
        assert abs(float((means.mean() - z) / (means.std() / math.sqrt(60)))) < 4.5


def test_the_regression_finds_the_mean_of_noisy_ratios(generator):
    """Two hidden vectors, ratios 0 or 4 evenly and 0.5 always: e^c must be 2 and 0.5."""
    kind = torch.arange(4000) % 2
    ratio = torch.where(kind == 0, 4.0 * (torch.arange(4000) // 2 % 2), 0.5)
    hidden = torch.nn.functional.one_hot(kind, 2).float()
    examples = Examples(
        hidden, torch.zeros(4000), torch.zeros(4000, 0), torch.zeros(4000, dtype=torch.long), ratio.log()
    )  # fmt: skip
    correction = Correction(torch.eye(3), 2, 0, units=16, generator=generator)
    regression = Regression(units=16, steps=200, decay=0.0)
    regression.fit(correction, examples, generator=generator)
    found = correction(hidden[:2], torch.zeros(2), torch.zeros(2, 0))
    c = correction.of(found, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(c.detach().exp(), torch.tensor([2.0, 0.5]), rtol=0.1, atol=0)
    torch.testing.assert_close(correction.all(found)[:, 0], c)
    # The mean of e^c − r·c is 1 for c = 0, and (2 − 2 log 2 + ½ + ½ log 2)/2 at best.
    best = (2.5 - 1.5 * math.log(2)) / 2
    assert best - 1e-6 < float(regression.loss(correction, examples).detach()) < best + 0.01


def test_ratios_of_two_coins_are_those_worked_out_by_hand(generator):
    """'11' at log 3 under h of fair coins, 2 after a 1: where 1 is drawn, r = (3·½/g or 1·½/g)/2, with mean 1."""
    space = Space(2, 2)
    term = energy((motif(space, 1, 1), math.log(3)))
    coins = Tabular(space, torch.zeros(1, 3, 2, dtype=torch.float64))
    first = guided(Tilted(coins, term), surrogate=Uniform(), generator=generator)
    x = Sequences(torch.tensor([[1, 1], [1, 0]]), torch.tensor([2, 2]))
    start = torch.zeros(2, dtype=torch.long)
    rest = torch.tensor([math.log(0.5 / 0.75), math.log(0.5 / 0.25)], dtype=torch.float64)
    foreseen = torch.full((2,), -math.inf, dtype=torch.float64)
    kept = Kept(x, torch.arange(2), start, torch.zeros(2, 4), start, torch.tensor([1, 1]), foreseen, rest)
    found = kept.examples(first.states, first.log_ahead, first.states.open(term), term.features(x)[:, 0] * math.log(3))
    torch.testing.assert_close(found.log_ratio.exp(), torch.tensor([1.0, 1.0], dtype=torch.float64))


def test_what_is_foreseen_and_what_came_are_mixed_as_worked_out_by_hand(generator):
    """Two tokens to come after the first; q/g is 2 and ½ there, N is 3 and 5, and a quarter of each step is N."""
    trace = Trace(generator, foresight=0.25)
    row, ratios, ns = torch.zeros(1, dtype=torch.long), [7.0, 2.0, 0.5], [9.0, 3.0, 5.0]
    for place in range(3):
        ratio, n = (torch.tensor([one[place]]).log() for one in (ratios, ns))
        trace.add(row, torch.zeros(1, 4), row, row, ratio, n, place)
    trace.finish(Sequences(torch.zeros(1, 3, dtype=torch.long), torch.tensor([3])))
    (kept,) = trace.blocks
    last = 0.25 * 5  # after the second token; then 0.75·½·e^−E
    expected = torch.tensor([0.25 * 3 + 0.75 * 2 * last, last, 0.0], dtype=torch.float64)
    torch.testing.assert_close(kept.log_foreseen.exp(), expected)
    left = torch.tensor([0.75 * 2 * 0.75 * 0.5, 0.75 * 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(kept.log_rest.exp(), left)


def test_future_ratios_of_any_proposal_have_the_mean_that_the_base_gives_them(generator):
    """E[r·h | first token] = E_q[e^−E | first token], within 5 standard errors: one false alarm in 10⁶ runs."""
    target = Tilted(network(ENDED), two_motifs(ENDED))
    proposal = misled(target, generator, 1.0)
    trace = Trace(generator)
    walk = proposal.walk(2000, defensive=200, trace=trace, generator=generator)
    (kept,) = trace.blocks
    log_tilt = target.energy(walk.x).neg().detach()
    first = kept.place == 0
    weight = (log_tilt[kept.text[first]] + kept.log_rest[first]).exp()
    x = whole_space(ENDED)
    log_score, log_q = target.log_score(x).detach(), target.base.log_prob(x).detach()
    tokens = kept.token[first]
    for token in (0, 1):
        mine = x.tokens[:, 0] == token
        truth = float((log_score[mine].logsumexp(0) - log_q[mine].logsumexp(0)).exp())
        own = weight[tokens == token]
        assert abs(float(own.mean()) - truth) < 5 * float(own.std()) / math.sqrt(len(own))


def test_it_draws_better_than_it_began_where_the_hidden_state_knows_more(generator):
    target = Tilted(network(FIXED), energy((motif(FIXED, 1, 0, 1), 4.0), (Ones(), -1.5)))
    learning = Learning(rounds=2, draws=1000, regression=Regression(units=16))
    proposal, rounds = learnt(target, learning=learning, surrogate=Uniform(), draws=100, generator=generator)
    first = guided(target, surrogate=Uniform(), draws=100, generator=generator)
    sizes = []
    for one in (first, proposal):
        walk = one.walk(4000, defensive=400, generator=generator)
        weights = walk.base_log_prob - target.energy(walk.x).detach() - walk.log_prob
        sizes.append(float(effective_sample_size(weights)) / 4000)
    assert len(rounds) == 3
    assert sizes[1] > 1.1 * sizes[0]  # 1.2 to 1.5 in five runs


def test_an_energy_that_no_automaton_follows_is_looked_ahead_to_by_what_was_learnt(generator):
    target = Tilted(network(FIXED), lambda x, context=None: 1.5 * Ones()(x))
    drawn = draw(LookAhead(rounds=1, round_draws=800), target, 4000, generator=generator)
    plain = effective_sample_size(-target.energy(target.base.sample(4000, generator=generator)))
    assert float(effective_sample_size(drawn.log_weights)) > 1.5 * float(plain)


def test_the_same_generator_gives_the_same_proposal_and_torchs_own_state_is_left_alone():
    target = Tilted(network(ENDED), two_motifs(ENDED))
    before, found = torch.get_rng_state(), []
    for _ in range(2):
        random = Generator().manual_seed(5)
        proposal, _ = learnt(target, learning=QUICK, draws=100, generator=random)
        found.append(proposal.log_prob(everything(proposal)))
    assert torch.equal(*found)
    assert torch.equal(before, torch.get_rng_state())


def test_what_cannot_learn_is_said_in_one_sentence(generator):
    table = Tilted(Tabular.random(FIXED, generator=generator), two_motifs(FIXED))
    with pytest.raises(UserError, match="does not show its hidden states"):
        learnt(table, learning=QUICK, draws=100, generator=generator)
    with pytest.raises(UserError, match="Tabular does not show"):
        learnt(
            Tilted(Truncated(Tabular.random(FIXED, generator=generator)), two_motifs(FIXED)), generator=generator
        )  # fmt: skip
    with pytest.raises(UserError, match="goes token by token"):
        learnt(network(FIXED), generator=generator)
