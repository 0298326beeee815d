"""Exact figures of probabilistic automata, by backward recursion."""

import math

import numpy as np
import torch
from jaxtyping import Float, Int

from ebar.automata.construction import follow
from ebar.automata.deterministic import Dfa, explore, position_in, ranges
from ebar.automata.graph import Arcs, Graph, arrange, backward, count_paths, log_backward
from ebar.automata.probabilistic import ProbabilisticAutomaton


def entropy(automaton: ProbabilisticAutomaton) -> float:
    """H = −Σ p·log p in nats: the least fixpoint of equation 7 of Parshakova et al. 2019."""
    graph = automaton.graph
    return _expected(graph, -graph.arcs.log_weights)


def mean_length(automaton: ProbabilisticAutomaton) -> float:
    """The expected number of tokens, the end included."""
    return _expected(automaton.graph, np.ones(len(automaton.graph.arcs.labels)))


def count_strings(automaton: ProbabilisticAutomaton) -> int | float:
    """How many strings have a positive probability: an exact integer, or infinity."""
    return math.inf if automaton.graph.cyclic else count_paths(automaton.graph)


def probability(automaton: ProbabilisticAutomaton, dfa: Dfa) -> float:
    """The probability that a string, its end token left out, is in the language: a binary feature's exact mean."""
    arcs, pairs, after = follow(automaton, dfa)
    accepted = (arcs.targets != pairs - 1) | dfa.accepting.cpu().numpy()[after]
    arranged = arrange(arcs.select(accepted), pairs, 0, pairs - 1)
    return 0.0 if arranged is None else min(1.0, math.exp(log_backward(arranged[0])[0]))  # 1 + rounding is 1


def expected_count(automaton: ProbabilisticAutomaton, dfa: Dfa) -> float:
    """The expected number of prefixes, the empty one left out, in the language: with `ends_with`, an n-gram count."""
    arcs, pairs, after = follow(automaton, dfa)
    end = -1 if automaton.space.end is None else automaton.space.end
    rewards = (dfa.accepting.cpu().numpy()[after] & (arcs.labels != end)).astype(np.float64)
    arranged = arrange(arcs, pairs, 0, pairs - 1)
    assert arranged is not None  # a distribution has strings
    graph, kept = arranged
    return _expected(graph, rewards[kept])


def kl(p: ProbabilisticAutomaton, q: ProbabilisticAutomaton) -> float:
    """KL(p‖q) = Σ p·log(p/q), by following both along p's strings; infinite where p has a string that q has not.

    Carrasco 1997.
    """
    end_p, end_q, states = p.graph.states - 1, q.graph.states - 1, q.graph.states
    first, number = p.graph.offsets[:-1], np.diff(p.graph.offsets)

    def arcs_of(
        pairs: Int[np.ndarray, " n"],
    ) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        at = pairs // states
        arc = ranges(first[at], number[at])
        label = torch.from_numpy(p.graph.arcs.labels[arc])
        after, log_q = q.step(torch.from_numpy(np.repeat(pairs % states, number[at])), label)
        return arc, log_q.numpy(), p.graph.arcs.targets[arc] * states + after.numpy()

    keys = explore(0, lambda pairs: arcs_of(pairs)[2])
    arc, log_q, reached = arcs_of(keys)
    together = ((reached // states == end_p) == (reached % states == end_q)).all()
    if not together or not np.isfinite(log_q).all():
        return math.inf
    sources = np.repeat(np.arange(len(keys)), number[keys // states])
    arcs = Arcs(sources, p.graph.arcs.labels[arc], position_in(keys, reached), p.graph.arcs.log_weights[arc])
    arranged = arrange(arcs, len(keys), 0, int(position_in(keys, np.array([end_p * states + end_q]))[0]))
    assert arranged is not None  # p has strings
    graph, kept = arranged
    return _expected(graph, (arcs.log_weights - log_q)[kept])


def _expected(graph: Graph, rewards: Float[np.ndarray, " arcs"]) -> float:
    """The expected sum of the rewards of a path's arcs."""
    per_state = np.zeros(graph.states)
    np.add.at(per_state, graph.arcs.sources, graph.weights * rewards)
    return float(backward(graph, per_state)[0])
