"""Weighted arcs in compressed rows, their states in an order that every recursion can run along."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ebar.automata.deterministic import ranges


class Arcs(NamedTuple):
    """Transitions (q, l, q′, w) (Parshakova et al. 2019, A.2.1), in any order, the weight as its logarithm."""

    sources: Int[np.ndarray, " arcs"]
    labels: Int[np.ndarray, " arcs"]
    targets: Int[np.ndarray, " arcs"]
    log_weights: Float[np.ndarray, " arcs"]

    def select(self, chosen: Int[np.ndarray, " chosen"] | Bool[np.ndarray, " arcs"]) -> "Arcs":
        """Some of the arcs."""
        return Arcs(self.sources[chosen], self.labels[chosen], self.targets[chosen], self.log_weights[chosen])


@dataclass(frozen=True, eq=False)
class Graph:
    """State 0 is the start; the last state is the end of every string and has no arcs; every state is on a path.

    States are in levels: an arc leads to a later level, or, on a cycle, stays within one (its strongly connected
    component). So a backward recursion is one vectorised step per level. Memory is linear in the arcs.
    """

    arcs: Arcs  # by source, then label; one per source and label: deterministic
    levels: Int[np.ndarray, " levels_and_one"]  # the first state of each level, and the number of states
    component: Int[np.ndarray, " states"]  # never decreasing: components are contiguous

    @property
    def states(self) -> int:
        return len(self.component)

    @cached_property
    def offsets(self) -> Int[np.ndarray, " states_and_one"]:
        """The arcs of state s are offsets[s] : offsets[s + 1]."""
        return np.searchsorted(self.arcs.sources, np.arange(self.states + 1))

    @cached_property
    def weights(self) -> Float[np.ndarray, " arcs"]:
        return np.asarray(np.exp(self.arcs.log_weights))

    @cached_property
    def cyclic(self) -> bool:
        """Whether strings have no longest length."""
        return bool((self.component[self.arcs.sources] == self.component[self.arcs.targets]).any())

    @property
    def longest(self) -> int:
        """The most arcs on a path, where there is no cycle."""
        return len(self.levels) - 2


def arrange(arcs: Arcs, states: int, start: int, final: int) -> tuple[Graph, Int[np.ndarray, " kept"]] | None:
    """The graph of the arcs that lie on a path from start to final, and which arcs those are, in the graph's order.

    None where there is no path.
    """
    forward = _reached(arcs.sources, arcs.targets, states, start)
    backward = _reached(arcs.targets, arcs.sources, states, final)
    useful = forward & backward
    if not useful[start]:
        return None
    kept = np.flatnonzero(useful[arcs.sources] & useful[arcs.targets])
    number = np.cumsum(useful) - 1
    count = int(useful.sum())
    sources, targets = number[arcs.sources[kept]], number[arcs.targets[kept]]
    component = np.arange(count)
    level = _levels(sources, targets, count)
    if level.min() < 0:
        component = _components(sources, targets, count)
        crossing = component[sources] != component[targets]
        level = _levels(component[sources][crossing], component[targets][crossing], int(component.max()) + 1)[component]
    # Every state is reached from the start, so its component is alone in the highest level.
    order = np.lexsort((np.arange(count) != number[start], component, -level))
    rank = np.argsort(order)
    sources, targets = rank[sources], rank[targets]
    by_row = np.lexsort((arcs.labels[kept], sources))
    kept = kept[by_row]
    arranged = Arcs(sources[by_row], arcs.labels[kept], targets[by_row], arcs.log_weights[kept])
    if ((np.diff(arranged.sources) == 0) & (np.diff(arranged.labels) == 0)).any():
        raise ValueError("two arcs of one state have the same label: the automaton is not deterministic")
    levels = np.flatnonzero(np.diff(level[order], prepend=-1, append=-1))
    components = np.cumsum(np.diff(component[order], prepend=component[order[0]]) != 0)
    return Graph(arranged, levels, components), kept


def _rows(
    sources: Int[np.ndarray, " arcs"], targets: Int[np.ndarray, " arcs"], states: int
) -> tuple[Int[np.ndarray, " states"], Int[np.ndarray, " states"], Int[np.ndarray, " arcs"]]:
    count = np.bincount(sources, minlength=states)
    return np.cumsum(count) - count, count, targets[np.argsort(sources, kind="stable")]


def _reached(
    sources: Int[np.ndarray, " arcs"], targets: Int[np.ndarray, " arcs"], states: int, start: int
) -> Bool[np.ndarray, " states"]:
    first, count, after = _rows(sources, targets, states)
    reached = np.zeros(states, dtype=bool)
    reached[start] = True
    frontier = np.array([start])
    while frontier.size:
        found = after[ranges(first[frontier], count[frontier])]
        frontier = np.unique(found[~reached[found]])
        reached[frontier] = True
    return reached


def _levels(
    sources: Int[np.ndarray, " arcs"], targets: Int[np.ndarray, " arcs"], states: int
) -> Int[np.ndarray, " states"]:
    """The most arcs from each state to one without arcs; −1 for a state that can reach a cycle."""
    first, count, before = _rows(targets, sources, states)
    waiting = np.bincount(sources, minlength=states)
    level = np.full(states, -1)
    frontier, depth = np.flatnonzero(waiting == 0), 0
    while frontier.size:
        level[frontier] = depth
        depth += 1
        found = before[ranges(first[frontier], count[frontier])]
        np.subtract.at(waiting, found, 1)
        frontier = np.unique(found[waiting[found] == 0])
    return level


def _components(
    sources: Int[np.ndarray, " arcs"], targets: Int[np.ndarray, " arcs"], states: int
) -> Int[np.ndarray, " states"]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    adjacency = csr_array((np.ones(len(sources)), (sources, targets)), shape=(states, states))
    labels = connected_components(adjacency, directed=True, connection="strong")[1]
    return np.asarray(labels, dtype=np.int64)
