import math

import numpy as np
import pytest
import torch

from ebar.automata import graph as graphs
from ebar.automata.construction import UNBOUNDED, capped, from_arcs, intersection, mixture, stopping_noise, white_noise
from ebar.automata.expressions import compile_expression
from ebar.automata.graph import Arcs
from ebar.automata.measures import count_strings, entropy, expected_count, kl, mean_length, probability
from ebar.automata.motif import contains, ends_with
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.types import Space
from tests.automata.test_probabilistic import NAMES, automata, loop, support


def random_automaton(seed: int, states: int, stop: float = 0.1) -> ProbabilisticAutomaton:
    """Strongly connected, two arcs and an end from each state."""
    source = np.arange(states)
    draw = np.random.default_rng(seed)
    weights = draw.dirichlet([1, 1], size=states) * (1 - stop)
    sources = np.concatenate([source, source, source])
    labels = np.repeat([0, 1, 2], states)
    targets = np.concatenate([(source + 1) % states, draw.integers(states, size=states), np.full(states, states)])
    log_weights = np.log(np.concatenate([weights[:, 0], weights[:, 1], np.full(states, stop)]))
    arcs = Arcs(sources, labels, targets, log_weights)
    return from_arcs(arcs, states + 1, start=0, final=states, space=Space(3, UNBOUNDED, 2))


def test_the_figures_of_the_motif_language_are_those_of_the_document():
    noise, motif = white_noise(Space(3, 31, 2)), contains([int(bit) for bit in "10001011111000"], 2)
    pure, mixed = intersection(noise, motif), mixture(noise, [motif, ~motif], [0.9, 0.1])
    assert count_strings(pure) == 1_113_640
    assert count_strings(mixed) == 2**30
    assert entropy(pure) == pytest.approx(math.log(1_113_640), abs=1e-12)
    rest = 2**30 - 1_113_640
    assert entropy(mixed) == pytest.approx(-0.9 * math.log(0.9 / 1_113_640) - 0.1 * math.log(0.1 / rest), abs=1e-12)
    assert mean_length(mixed) == pytest.approx(31, abs=1e-12)
    assert entropy(noise) / 31 == pytest.approx(30 * math.log(2) / 31, abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_what_enumeration_says(name):
    automaton = automata()[name]
    x = support(automaton.space)
    log_p = automaton.log_prob(x)
    p = log_p.exp()
    positive = p > 0
    end = automaton.space.end
    assert entropy(automaton) == pytest.approx(-(p * log_p)[positive].sum().item(), abs=1e-12)
    assert mean_length(automaton) == pytest.approx((p * x.lengths).sum().item(), abs=1e-12)
    assert count_strings(automaton) == positive.sum().item()
    feature = contains([1, 2, 1] if automaton.space.end == 0 else [1, 0, 1], 3)
    assert probability(automaton, feature) == pytest.approx(p[feature.accepts(x, end)].sum().item(), abs=1e-12)
    pair = ends_with([1, 1], 3)
    times = torch.where(x.mask() & (x.tokens != end), pair.accepting[pair.follow(x.tokens)], False).sum(1)
    assert expected_count(automaton, pair) == pytest.approx((p * times).sum().item(), abs=1e-12)


def test_divergences_between_automata_are_what_enumeration_says():
    noise, motif = white_noise(Space(3, 7, 2)), contains([1, 1, 0], 2)
    mixed, pure = mixture(noise, [motif, ~motif], [0.9, 0.1]), intersection(noise, motif)
    x = support(noise.space)
    for p, q in ((mixed, noise), (noise, mixed), (pure, mixed), (pure, noise)):
        log_p, log_q = p.log_prob(x), q.log_prob(x)
        inside = log_p > -math.inf
        expected = (log_p.exp() * (log_p - log_q))[inside].sum().item()
        assert kl(p, q) == pytest.approx(expected, abs=1e-12)
    assert kl(mixed, mixed) == pytest.approx(0, abs=1e-15)
    assert kl(mixed, pure) == math.inf
    assert kl(pure, noise) == pytest.approx(-pure.log_partition, abs=1e-12)
    assert kl(white_noise(Space(2, 3)), white_noise(Space(2, 4))) == math.inf


def test_unbounded_noise_has_the_entropy_worked_out_by_hand():
    # A geometric number of tokens: H = (h(s) + (1 − s)·log 2)/s, mean length 1/s with the end.
    stop = 0.05
    noise = stopping_noise(3, 2, stop=stop)
    coin = -stop * math.log(stop) - (1 - stop) * math.log(1 - stop)
    assert entropy(noise) == pytest.approx((coin + (1 - stop) * math.log(2)) / stop, rel=1e-13)
    assert mean_length(noise) == pytest.approx(20, rel=1e-13)
    assert count_strings(noise) == math.inf
    # P(some 1) = 1 − Σ (0.95/2)ⁿ·0.05
    assert probability(noise, contains([1], 2)) == pytest.approx(1 - stop / (1 - 0.475), rel=1e-13)
    assert expected_count(noise, ends_with([1], 2)) == pytest.approx(9.5, rel=1e-13)
    other = stopping_noise(3, 2, stop=0.2)
    expected = 19 * math.log(0.95 / 0.8) + math.log(stop / 0.2)
    assert kl(noise, other) == pytest.approx(expected, rel=1e-12)
    assert kl(loop(), loop()) == pytest.approx(0, abs=1e-14)


def test_a_cyclic_automaton_is_the_limit_of_its_caps():
    conditioned = intersection(stopping_noise(3, 2, stop=0.3), contains([1, 1, 0], 2))
    bounded = capped(conditioned, 120)
    assert entropy(conditioned) == pytest.approx(entropy(bounded), rel=1e-12)
    assert mean_length(conditioned) == pytest.approx(mean_length(bounded), rel=1e-12)


def test_the_documents_iteration_tends_to_the_direct_solution():
    automaton = random_automaton(3, 40)
    graph = automaton.graph
    value = np.zeros(graph.states)
    for _ in range(2000):  # equation 7, from zero
        terms = graph.weights * (value[graph.arcs.targets] - graph.arcs.log_weights)
        value = np.asarray(np.bincount(graph.arcs.sources, terms, minlength=graph.states), dtype=np.float64)
    assert entropy(automaton) == pytest.approx(value[0], rel=1e-12)


@pytest.mark.parametrize("stop", [0.2, 0.001])
def test_elimination_and_iteration_agree(stop, monkeypatch):
    automaton = random_automaton(7, 600, stop)
    direct = entropy(automaton), mean_length(automaton)
    monkeypatch.setattr(graphs, "DIRECT", 10)
    again = random_automaton(7, 600, stop)
    assert (entropy(again), mean_length(again)) == pytest.approx(direct, rel=1e-10)
    assert again.log_partition == pytest.approx(0, abs=1e-10)


def test_iteration_refuses_weights_that_diverge(monkeypatch):
    monkeypatch.setattr(graphs, "DIRECT", 1)
    monkeypatch.setattr(graphs, "ROUNDS", 20_000)
    arcs = Arcs(np.array([0, 1, 1]), np.array([0, 0, 2]), np.array([1, 0, 2]), np.log([1.5, 1.5, 1.0]))
    with pytest.raises(UserError, match=r"settle|weigh too much"):
        from_arcs(arcs, 3, start=0, final=2, space=Space(3, UNBOUNDED, 2))


def big(length: int) -> ProbabilisticAutomaton:
    return intersection(white_noise(Space(3, length + 1, 2)), compile_expression(".*1.{9}1.*", "01"))


def bytes_of(automaton: ProbabilisticAutomaton) -> int:
    graph = automaton.graph
    arrays = [*graph.arcs, graph.levels, graph.component, graph.offsets, graph.weights]
    return sum(array.nbytes for array in arrays) + sum(t.nbytes for t in automaton.tables)


def test_a_hundred_thousand_states_take_memory_linear_in_the_arcs(generator):
    small = big(60)
    large = big(115)
    nats = entropy(large)
    x = large.sample(10_000, generator=generator)
    assert large.graph.states > 100_000
    assert nats == pytest.approx(math.log(count_strings(large)), rel=1e-12)  # uniform over its strings
    assert compile_expression(".*1.{9}1.*", "01").accepts(x, end=2).all()
    each = [bytes_of(automaton) / len(automaton.graph.arcs.labels) for automaton in (small, large)]
    assert each[1] == pytest.approx(each[0], rel=0.02)
    assert each[1] < 120


def test_pynini_agrees_on_the_partition_function_of_random_automata():
    pynini = pytest.importorskip("pynini", reason="pynini is not installed")
    for seed in range(10):
        automaton = random_automaton(seed, 6)
        draw = np.random.default_rng(seed)
        arcs = automaton.graph.arcs
        log_weights = arcs.log_weights - draw.random(len(arcs.labels))
        final = automaton.graph.states - 1
        space = automaton.space
        ours = from_arcs(arcs._replace(log_weights=log_weights), final + 1, start=0, final=final, space=space)
        machine = pynini.Fst(arc_type="log64")
        machine.add_states(final + 1)
        machine.set_start(0)
        machine.set_final(final)
        for source, label, target, weight in zip(arcs.sources, arcs.labels, arcs.targets, log_weights, strict=True):
            arc = pynini.Arc(int(label) + 1, int(label) + 1, pynini.Weight("log64", -float(weight)), int(target))
            machine.add_arc(int(source), arc)
        # The default delta stops too early on cycles.
        backward = pynini.shortestdistance(machine, reverse=True, delta=1e-14)
        assert ours.log_partition == pytest.approx(-float(backward[0]), abs=1e-8)
