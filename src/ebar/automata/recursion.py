"""Backward recursions over a graph: x(q) = r(q) + Σ w·x(q′), one level at a time, cycles as linear systems."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ebar.automata.graph import Graph
from ebar.errors import UserError

DIRECT = 2_000  # states of one level's cycles that are solved by elimination
RESIDUAL = 1e-12  # relative to the largest value: where iteration stops
ROUNDS = 1_000_000


def backward(graph: Graph, rewards: Float[np.ndarray, " states"]) -> Float[np.ndarray, " states"]:
    """The least solution of x(q) = r(q) + Σ w·x(q′), with x = 0 at the end of the string.

    With r = −Σ w·log w it is equation 7 of Parshakova et al. 2019 and x the entropy; with r = 1 the mean length.
    """
    value = np.zeros(graph.states)
    for first, last, arcs in _levels(graph):
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
    for first, last, arcs in _levels(graph):
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
    for first, last, arcs in _levels(graph):
        ways[first:last] = _sums(graph, first, last, ways[graph.arcs.targets[arcs]])
    return int(ways[0])


def _levels(graph: Graph) -> list[tuple[int, int, slice]]:
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
