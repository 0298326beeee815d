"""Weighted arcs in compressed rows, their states in an order that every recursion can run along.

Backward recursions x(q) = r(q) + Σ w·x(q′) go one level at a time, cycles as linear systems.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ebar.automata.deterministic import ranges
from ebar.errors import UserError


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


DIRECT = 2_000  # states of one level's cycles that are solved by elimination
RESIDUAL = 1e-12  # relative to the largest value: where iteration stops
ROUNDS = 1_000_000


def backward(graph: Graph, rewards: Float[np.ndarray, " states"]) -> Float[np.ndarray, " states"]:
    """The least solution of x(q) = r(q) + Σ w·x(q′), with x = 0 at the end of the string.

    With r = −Σ w·log w it is equation 7 of Parshakova et al. 2019 and x the entropy; with r = 1 the mean length.
    """
    value = np.zeros(graph.states)
    for first, last, arcs in _arcs_of_levels(graph):
        # Arcs within the level see zeros here, and are solved for below.
        flow = graph.weights[arcs] * value[graph.arcs.targets[arcs]]
        known = rewards[first:last] + _sums(graph, first, last, flow)
        value[first:last] = _solve(graph, first, last, known)
    return value


def log_backward(graph: Graph) -> Float[np.ndarray, " states"]:
    """log β(q), β(q) the total weight of all paths from q to the end; β at the start is the partition function.

    In log space, level by level, so that the weight of one string among 4²⁰⁰⁰ does not underflow; each cycle is
    solved at a scale of its own. Weights whose sum diverges are an error.
    """
    value = np.full(graph.states, -np.inf)
    value[-1] = 0.0
    for first, last, arcs in _arcs_of_levels(graph):
        flow = graph.arcs.log_weights[arcs] + value[graph.arcs.targets[arcs]]
        log_known = _log_sums(graph, first, last, flow)
        if graph.cyclic:
            changes = np.flatnonzero(np.diff(graph.component[first:last], prepend=-1))
            sizes = np.diff(changes, append=last - first)
            scale = np.repeat(np.maximum.reduceat(log_known, changes), sizes)
            solved = _solve(graph, first, last, np.exp(log_known - scale))
            # (I − W)x = r with r ≥ 0 has a positive solution exactly when the powers of W sum (Perron).
            if not (solved > 0).all():
                raise UserError("The automaton's weights have no finite positive sum: its cycles weigh too much.")
            log_known = np.log(solved) + scale
        value[first:last] = log_known
    return value


def count_paths(graph: Graph) -> int:
    """How many strings there are, as an exact integer; only for a graph without cycles."""
    ways = np.zeros(graph.states, dtype=object)
    ways[-1] = 1
    for first, last, arcs in _arcs_of_levels(graph):
        ways[first:last] = _sums(graph, first, last, ways[graph.arcs.targets[arcs]])
    return int(ways[0])


def _arcs_of_levels(graph: Graph) -> list[tuple[int, int, slice]]:
    """First state, last state and arcs of each level, from the end to the start, the end itself left out."""
    bounds = graph.levels.tolist()
    ends = graph.offsets[graph.levels].tolist()
    return [(bounds[i], bounds[i + 1], slice(ends[i], ends[i + 1])) for i in range(len(bounds) - 3, -1, -1)]


def _sums(graph: Graph, first: int, last: int, flow: Any) -> Any:
    """Σ over the arcs of each state of the level; every state has at least one."""
    return np.add.reduceat(flow, graph.offsets[first:last] - graph.offsets[first])


def _log_sums(graph: Graph, first: int, last: int, flow: Float[np.ndarray, " arcs"]) -> Float[np.ndarray, " level"]:
    starts = graph.offsets[first:last] - graph.offsets[first]
    largest = np.maximum.reduceat(flow, starts)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    counts = np.diff(graph.offsets[first : last + 1])
    with np.errstate(divide="ignore"):
        return np.log(np.add.reduceat(np.exp(flow - np.repeat(shift, counts)), starts)) + shift


def _solve(graph: Graph, first: int, last: int, known: Float[np.ndarray, " level"]) -> Float[np.ndarray, " level"]:
    """x = known + W·x, W the arcs within the level."""
    if not graph.cyclic:
        return known
    arcs = slice(int(graph.offsets[first]), int(graph.offsets[last]))
    targets = graph.arcs.targets[arcs]
    inside = np.flatnonzero((targets >= first) & (targets < last))
    if not inside.size:
        return known
    sources = graph.arcs.sources[arcs][inside] - first
    return fixpoint(sources, targets[inside] - first, graph.weights[arcs][inside], known)


def fixpoint(
    sources: Int[np.ndarray, " arcs"],
    targets: Int[np.ndarray, " arcs"],
    weights: Float[np.ndarray, " arcs"],
    known: Float[np.ndarray, " states"],
) -> Float[np.ndarray, " states"]:
    """x = known + W·x: by elimination up to `DIRECT` states, beyond by iteration to the residual.

    The iteration is theirs, xᵗ⁺¹ = known + W·xᵗ, which tends to the least fixpoint from zero, and where
    W's powers sum, from anywhere: so it is started near the end, from what BiCGSTAB makes of the same system.
    """
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import bicgstab, splu

    states = len(known)
    matrix = csr_array((weights, (sources, targets)), shape=(states, states))
    system = (eye_array(states) - matrix).tocsc()
    if states <= DIRECT:
        try:
            return np.asarray(splu(system).solve(known))
        except RuntimeError as singular:
            raise UserError("The automaton never ends: some cycle keeps all of its weight.") from singular
    value, _ = bicgstab(system, known, rtol=RESIDUAL / 10, maxiter=10 * states)
    value = np.where(np.isfinite(value), value, 0.0)
    for _ in range(ROUNDS):
        after = known + matrix @ value
        gap, size = np.abs(after - value).max(), np.abs(after).max()
        value = after
        if gap <= RESIDUAL * max(size, 1.0):
            return np.asarray(value)
        if not np.isfinite(size):
            break
    raise UserError("The automaton's recursion does not settle: some cycle keeps nearly all of its weight.")
