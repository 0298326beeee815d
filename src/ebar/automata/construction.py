"""Making probabilistic automata: noise, conditioning on a regular language, mixtures, length caps."""

import math
import sys
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.automata.deterministic import Dfa, explore, position_in, product, ranges
from ebar.automata.graph import Arcs, Graph, arrange, log_backward
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.types import Space

UNBOUNDED = sys.maxsize  # the length of a space whose sequences have no longest one


class EmptyLanguageError(UserError):
    """No string is left."""


def from_arcs(arcs: Arcs, states: int, *, start: int, final: int, space: Space) -> ProbabilisticAutomaton:
    """The distribution in proportion to path weights, from any weighted arcs; `log_partition` is their log Σ.

    Backward weights make them probabilities: w′ = w·β(q′)/β(q). Arcs into `final` end the string: they and only
    they carry the end token, where the space has one; where it has none every string must have the space's length.
    """
    arranged = arrange(arcs.select(arcs.log_weights > -np.inf), states, start, final)
    if arranged is None:
        raise EmptyLanguageError("No sequence satisfies the condition: the automaton would have no string left.")
    graph = arranged[0]
    if not graph.cyclic and graph.longest > space.length:
        raise UserError(f"The automaton has strings of {graph.longest} tokens, the space of {space.length}.")
    if space.end is None:
        level = np.repeat(np.arange(len(graph.levels) - 1), np.diff(graph.levels))
        steps = level[graph.arcs.targets] - level[graph.arcs.sources]
        if graph.longest != space.length or (steps != 1).any():
            raise UserError(f"Without an end token every string must have exactly {space.length} tokens.")
    elif ((graph.arcs.labels == space.end) != (graph.arcs.targets == graph.states - 1)).any():
        raise ValueError("the end token, and nothing else, leads to the final state")
    log_beta = log_backward(graph)
    arcs = graph.arcs
    log_weights = arcs.log_weights + log_beta[arcs.targets] - log_beta[arcs.sources]
    graph = Graph(arcs._replace(log_weights=log_weights), graph.levels, graph.component)
    return ProbabilisticAutomaton(graph, space, float(log_beta[0]))


def proper(arcs: Arcs, states: int, *, start: int, final: int, space: Space) -> ProbabilisticAutomaton:
    """The distribution whose arcs are already probabilities; arcs that lose or gain mass are an error."""
    automaton = from_arcs(arcs, states, start=start, final=final, space=space)
    if abs(automaton.log_partition) > 1e-9:
        mass = math.exp(automaton.log_partition)
        raise UserError(f"The automaton is improper: its strings have probability {mass:.9g} in all, not 1.")
    return automaton


def white_noise(space: Space) -> ProbabilisticAutomaton:
    """Every string of the space's full length equally likely; the end token, where there is one, costs nothing."""
    symbols = _symbols(space)
    length = space.length - (space.end is not None)
    if length < 0 or not len(symbols) or (length == 0 and space.end is None):
        raise UserError(f"White noise needs a length and a token: {space} leaves none.")
    sources = np.repeat(np.arange(length), len(symbols))
    arcs = Arcs(sources, np.tile(symbols, length), sources + 1, np.full(len(sources), -math.log(len(symbols))))
    if space.end is not None:
        arcs = _with_end(arcs, np.array([length]), length + 1, space.end, 0.0)
        length += 1
    return from_arcs(arcs, length + 1, start=0, final=length, space=space)


def stopping_noise(vocabulary: int, end: int, *, stop: float) -> ProbabilisticAutomaton:
    """Before each token the string ends with probability `stop`; else every token but the end is equally likely."""
    if not 0 < stop <= 1:
        raise UserError(f"The probability to stop must be above 0 and at most 1, and {stop} is not.")
    space = Space(vocabulary, UNBOUNDED, end)
    symbols = _symbols(space)
    zeros = np.zeros(len(symbols), dtype=np.int64)
    log_weight = math.log1p(-stop) - math.log(len(symbols)) if stop < 1 else -math.inf
    arcs = Arcs(zeros, symbols, zeros, np.full(len(symbols), log_weight))
    return from_arcs(_with_end(arcs, np.array([0]), 1, end, math.log(stop)), 2, start=0, final=1, space=space)


def reweighted(
    automaton: ProbabilisticAutomaton, dfa: Dfa, log_weights: Float[Tensor, " states"]
) -> ProbabilisticAutomaton:
    """p(x) ∝ automaton(x)·exp(log_weights[the state `dfa` ends in on x]); `log_partition` is its log Z.

    Zeros and −∞ are a condition; λ·flags over a `product` is a whole linear energy, its Z exact.
    """
    arcs, pairs, after = follow(automaton, dfa)
    last = arcs.targets == pairs - 1
    extra = log_weights.to(torch.float64).cpu().numpy()[after]
    arcs = arcs._replace(log_weights=np.where(last, arcs.log_weights + extra, arcs.log_weights))
    return from_arcs(arcs, pairs, start=0, final=pairs - 1, space=automaton.space)


def intersection(automaton: ProbabilisticAutomaton, dfa: Dfa) -> ProbabilisticAutomaton:
    """The automaton conditioned on a regular language; `log_partition` is the language's log-probability."""
    zero = torch.zeros(dfa.states, dtype=torch.float64)
    return reweighted(automaton, dfa, torch.where(dfa.accepting.cpu(), zero, -torch.inf))


def mixture(
    automaton: ProbabilisticAutomaton, languages: Sequence[Dfa], probabilities: Sequence[float]
) -> ProbabilisticAutomaton:
    """Σᵢ pᵢ·automaton(x | x ∈ Lᵢ), itself deterministic, whether or not the languages overlap.

    The parts share one base, so the mixture is base(x)·Σᵢ pᵢ/Zᵢ·1[x ∈ Lᵢ]: a reweighting by the state in which
    the product of the languages ends. No selector is prepended and stripped, as in Parshakova et al. 2019's code.
    """
    if any(p < 0 for p in probabilities) or abs(sum(probabilities) - 1) > 1e-12:
        raise UserError(f"The parts of a mixture need probabilities that sum to 1, which {list(probabilities)} do not.")
    parts = [(dfa, p) for dfa, p in zip(languages, probabilities, strict=True) if p > 0]
    joint, flags = product([dfa for dfa, _ in parts])
    shares = [math.log(p) - intersection(automaton, dfa).log_partition for dfa, p in parts]
    log_shares = torch.where(flags, torch.tensor(shares, dtype=torch.float64), -torch.inf)
    return reweighted(automaton, joint, torch.logsumexp(log_shares, 1))


def capped(automaton: ProbabilisticAutomaton, length: int) -> ProbabilisticAutomaton:
    """The automaton conditioned on at most `length` tokens, the end included; without cycles, so fit to be stepped."""
    if automaton.space.end is None:
        raise UserError("Only a space with an end token can be given a cap on length.")
    if length < 1:
        raise UserError(f"A cap on length of {length} leaves no sequence: even the empty one has an end token.")
    vocabulary = automaton.space.vocabulary
    table = torch.arange(1, length + 1).clamp(max=length)[:, None].repeat(1, vocabulary)
    table = torch.cat([table, torch.full((1, vocabulary), length)])
    short = intersection(automaton, Dfa(table, torch.arange(length + 1) < length))
    space = Space(vocabulary, length, automaton.space.end)
    return ProbabilisticAutomaton(short.graph, space, short.log_partition)


def follow(automaton: ProbabilisticAutomaton, dfa: Dfa) -> tuple[Arcs, int, Int[np.ndarray, " arcs"]]:
    """The arcs of both followed together, how many pairs of states that takes, and where `dfa` is after each arc.

    The first pair is the start, the last the end of the string; the end token does not move `dfa`.
    """
    graph, end = automaton.graph, automaton.space.end
    if int(graph.arcs.labels[graph.arcs.labels != end].max(initial=0)) >= dfa.vocabulary:
        raise ValueError(f"the automaton has tokens outside the vocabulary of {dfa.vocabulary}")
    table, states, final = dfa.table.cpu().numpy(), dfa.states, graph.states - 1
    first, count = graph.offsets[:-1], np.diff(graph.offsets)
    targets, labels = graph.arcs.targets, graph.arcs.labels

    def arcs_of(pairs: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " m"], ...]:
        state = pairs // states
        arc = ranges(first[state], count[state])
        at = np.repeat(pairs % states, count[state])
        after = np.where(labels[arc] == (-1 if end is None else end), at, table[at, labels[arc] % dfa.vocabulary])
        reached = np.where(targets[arc] == final, final * states, targets[arc] * states + after)
        return arc, after, reached

    keys = explore(dfa.start, lambda pairs: arcs_of(pairs)[2])
    keys = np.concatenate([keys[keys != final * states], [final * states]])
    arc, after, reached = arcs_of(keys)
    sources = np.repeat(np.arange(len(keys)), count[keys // states])
    arcs = Arcs(sources, labels[arc], position_in(keys, reached), graph.arcs.log_weights[arc])
    return arcs, len(keys), after


def _symbols(space: Space) -> Int[np.ndarray, " symbols"]:
    return np.array([token for token in range(space.vocabulary) if token != space.end], dtype=np.int64)


def _with_end(arcs: Arcs, sources: Int[np.ndarray, " n"], final: int, end: int, log_weight: float) -> Arcs:
    extra = Arcs(sources, np.full_like(sources, end), np.full_like(sources, final), np.full(len(sources), log_weight))
    return Arcs(*(np.concatenate(pair) for pair in zip(arcs, extra, strict=True)))
