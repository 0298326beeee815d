import math

import numpy as np
import pytest
import torch
from torch import Generator

from ebar.automata.construction import (
    UNBOUNDED,
    EmptyLanguageError,
    capped,
    from_arcs,
    intersection,
    mixture,
    proper,
    reweighted,
    stopping_noise,
    white_noise,
)
from ebar.automata.deterministic import product
from ebar.automata.expressions import compile_expression
from ebar.automata.graph import Arcs
from ebar.automata.motif import contains, ends_with, starts_with
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.types import Context, Distribution, SamplesWithLogProb, Sequences, Space, State, Stepwise
from tests.automata.strings import all_strings, batch

FIXED = Space(3, 7, 2)
ODD_END = Space(3, 6, 0)  # the end token need not come last


def automata() -> dict[str, ProbabilisticAutomaton]:
    noise = white_noise(FIXED)
    motif = contains([1, 1, 0], 2)
    return {
        "noise": noise,
        "motif": intersection(noise, motif),
        "mixture": mixture(noise, [motif, ~motif], [0.9, 0.1]),
        "overlapping": mixture(noise, [motif, starts_with([0], 2)], [0.3, 0.7]),
        "no end": intersection(white_noise(Space(2, 6)), motif),
        "capped": capped(intersection(stopping_noise(3, 2, stop=0.3), ~motif), 7),
        "odd end": intersection(white_noise(ODD_END), contains([2, 1], 3)),
        "uneven": capped(loop(), 6),
    }


def loop() -> ProbabilisticAutomaton:
    """Two states that call each other, with probabilities all different."""
    arcs = Arcs(
        np.array([0, 0, 0, 1, 1]),
        np.array([0, 1, 2, 0, 2]),
        np.array([0, 1, 2, 0, 2]),
        np.log([0.2, 0.5, 0.3, 0.6, 0.4]),
    )
    return proper(arcs, 3, start=0, final=2, space=Space(3, UNBOUNDED, 2))


NAMES = sorted(automata())


def support(space: Space) -> Sequences:
    symbols = [token for token in range(space.vocabulary) if token != space.end]
    shortest = space.length if space.end is None else 0
    words = all_strings(len(symbols), space.length - (space.end is not None), shortest)
    return batch([[symbols[token] for token in word] for word in words], end=space.end, padding=1)


@pytest.mark.parametrize("name", NAMES)
def test_the_probabilities_of_all_sequences_sum_to_one(name):
    automaton = automata()[name]
    assert isinstance(automaton, Distribution)
    assert isinstance(automaton, Stepwise)
    assert isinstance(automaton, SamplesWithLogProb)
    assert automaton.log_prob(support(automaton.space)).exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_conditioning_is_bayes_rule_on_every_string():
    noise, motif = white_noise(FIXED), contains([1, 1, 0], 2)
    x = support(FIXED)
    has = motif.accepts(x, end=2) & (x.lengths == 7)
    share = has.sum().item() / 64
    conditioned = intersection(noise, motif)
    assert conditioned.log_partition == pytest.approx(math.log(share), abs=1e-12)
    zero = torch.zeros(len(has), dtype=torch.float64)
    expected = torch.where(has, zero - math.log(64 * share), -torch.inf)
    torch.testing.assert_close(conditioned.log_prob(x), expected, rtol=0, atol=1e-12)
    mixed = mixture(noise, [motif, ~motif], [0.9, 0.1]).log_prob(x).exp()
    lacks = (x.lengths == 7) & ~has
    assert mixed[has].sum().item() == pytest.approx(0.9, abs=1e-12)
    torch.testing.assert_close(mixed[lacks], zero[lacks] + 0.1 / (64 - 64 * share), rtol=0, atol=1e-14)


def test_overlapping_parts_add_up():
    noise, left, right = white_noise(FIXED), contains([1, 1, 0], 2), starts_with([0], 2)
    x = support(FIXED)
    expected = 0.3 * intersection(noise, left).log_prob(x).exp() + 0.7 * intersection(noise, right).log_prob(x).exp()
    found = mixture(noise, [left, right], [0.3, 0.7]).log_prob(x).exp()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_a_linear_energy_over_automaton_features_is_an_automaton_with_its_exact_partition_function():
    noise, parts = white_noise(FIXED), [contains([1, 1], 2), starts_with([0], 2)]
    joint, flags = product(parts)
    weights = torch.tensor([1.3, -0.4], dtype=torch.float64)
    tilted = reweighted(noise, joint, flags.double() @ weights)
    x = support(FIXED)
    score = noise.log_prob(x) + torch.stack([part.accepts(x, end=2) for part in parts], 1).double() @ weights
    assert tilted.log_partition == pytest.approx(torch.logsumexp(score, 0).item(), abs=1e-12)
    torch.testing.assert_close(tilted.log_prob(x), score - tilted.log_partition, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_samples_carry_their_own_log_probability_and_stay_in_the_space(name, generator):
    automaton = automata()[name]
    x, log_prob = automaton.sample_with_log_prob(500, generator=generator)
    torch.testing.assert_close(automaton.log_prob(x), log_prob, rtol=0, atol=1e-12)
    assert torch.isfinite(log_prob).all()
    assert int(x.lengths.max()) <= automaton.space.length
    last = x.tokens[torch.arange(500), x.lengths - 1]
    if automaton.space.end is None:
        assert (x.lengths == automaton.space.length).all()
    else:
        assert (last == automaton.space.end).all()
        assert ((x.tokens == automaton.space.end) & x.mask()).sum() == 500


@pytest.mark.parametrize("name", [*NAMES, "loop"])
def test_samples_occur_as_often_as_their_probability_says(name, generator):
    # Six standard deviations for each of at most 200 counts, none expected below 20: a Poisson count of mean 20
    # strays that far once in 10⁶, so for any seed this fails by chance less than once in 1,000 runs.
    automaton = {**automata(), "loop": loop()}[name]
    draws = 20_000
    x, log_prob = automaton.sample_with_log_prob(draws, generator=generator)
    seen: dict[tuple[int, ...], int] = {}
    expected: dict[tuple[int, ...], float] = {}
    for tokens, length, p in zip(x.tokens.tolist(), x.lengths.tolist(), log_prob.exp().tolist(), strict=True):
        word = tuple(tokens[:length])
        seen[word] = seen.get(word, 0) + 1
        expected[word] = draws * p
    common = [word for word in seen if expected[word] >= 20]
    assert common
    for word in common:
        assert abs(seen[word] - expected[word]) < 6 * math.sqrt(expected[word])
    rest = draws - sum(expected[word] for word in common)
    assert abs(draws - sum(seen[word] for word in common) - rest) < 6 * math.sqrt(max(rest, 20))


def test_the_same_seed_gives_the_same_sample_and_contexts_multiply_it(generator):
    automaton = automata()["mixture"]
    again = [automaton.sample(100, generator=Generator().manual_seed(5)).tokens for _ in range(2)]
    assert torch.equal(*again)
    context = Context(batch([[0], [1], [0, 1]]))
    assert automaton.sample(4, context, generator=generator).tokens.shape[0] == 12
    assert automaton.sample(0, generator=generator).tokens.shape[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_stepping_adds_up_to_the_log_probability_of_every_sequence(name):
    automaton = automata()[name]
    x = support(automaton.space)
    first, state = automaton.start(len(x.lengths))
    assert isinstance(state, State)
    assert torch.allclose(first.exp().sum(1), torch.ones(1, dtype=torch.float64))
    later, _ = automaton.advance(x.tokens, state)
    logits = torch.cat([first[:, None], later[:, :-1]], 1)
    assert not torch.isnan(torch.log_softmax(logits, -1)).any()
    picked = torch.log_softmax(logits, -1).gather(2, x.tokens[:, :, None])[:, :, 0]
    total = torch.where(x.mask(), picked, 0.0).sum(1)
    torch.testing.assert_close(total, automaton.log_prob(x), rtol=0, atol=1e-12)
    one, middle = automaton.advance(x.tokens[:, :2], automaton.start(len(x.lengths))[1])
    order = torch.tensor([5, 5, 0])
    two, _ = automaton.advance(x.tokens[order][:, 2:3], middle.select(order))
    assert torch.equal(one, later[:, :2])
    assert torch.equal(two[:, 0], later[order, 2])


def test_a_cap_conditions_on_the_length():
    free, bounded = loop(), capped(loop(), 6)
    x = support(bounded.space)
    inside = torch.logsumexp(free.log_prob(x), 0)
    assert bounded.log_partition == pytest.approx(inside.item(), abs=1e-12)
    torch.testing.assert_close(bounded.log_prob(x), free.log_prob(x) - inside, rtol=0, atol=1e-12)
    assert free.space.length == UNBOUNDED
    assert bounded.space == Space(3, 6, 2)


def test_a_language_of_one_string_among_more_than_floats_can_count_keeps_its_probability():
    space = Space(5, 1001, 4)
    only = intersection(white_noise(space), compile_expression("(abcd){250}", "abcd"))
    assert only.log_partition == pytest.approx(-1000 * math.log(4), rel=1e-12)
    word = [0, 1, 2, 3] * 250
    assert only.log_prob(batch([word], end=4)).item() == pytest.approx(0, abs=1e-9)


def test_impossible_conditions_and_improper_automata_are_refused():
    with pytest.raises(EmptyLanguageError, match="No sequence"):
        intersection(white_noise(FIXED), contains([0] * 7, 2))
    with pytest.raises(UserError, match="sum to 1"):
        mixture(white_noise(FIXED), [contains([0], 2)], [0.5])
    with pytest.raises(UserError, match="probability to stop"):
        stopping_noise(3, 2, stop=0.0)
    arcs = Arcs(np.array([0, 0]), np.array([0, 1]), np.array([1, 1]), np.log([0.5, 0.5]))
    with pytest.raises(UserError, match="exactly 3"):
        from_arcs(arcs, 2, start=0, final=1, space=Space(2, 3))
    space = Space(3, UNBOUNDED, 2)
    # Half of the mass goes to a state that never ends.
    trap = Arcs(np.array([0, 0, 1]), np.array([0, 2, 0]), np.array([1, 2, 1]), np.log([0.5, 0.5, 1.0]))
    with pytest.raises(UserError, match=r"improper.*0\.5"):
        proper(trap, 3, start=0, final=2, space=space)
    for weight in (1.0, 2.0):  # Σ weightⁿ diverges
        heavy = Arcs(np.array([0, 0]), np.array([0, 2]), np.array([0, 1]), np.log([weight, 1.0]))
        with pytest.raises(UserError, match=r"weigh too much|never ends"):
            from_arcs(heavy, 2, start=0, final=1, space=space)
    twice = Arcs(np.array([0, 0]), np.array([2, 2]), np.array([1, 1]), np.log([0.5, 0.5]))
    with pytest.raises(ValueError, match="not deterministic"):
        from_arcs(twice, 2, start=0, final=1, space=space)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        intersection(white_noise(Space(4, 5, 3)), ends_with([0], 2))
