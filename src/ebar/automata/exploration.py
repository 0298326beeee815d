"""Walking integer-coded graphs a whole frontier at a time."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int


def ranges(first: Int[np.ndarray, " n"], count: Int[np.ndarray, " n"]) -> Int[np.ndarray, " total"]:
    """first[0], first[0]+1, … count[0] of them, then the same for the next: the arcs of several states at once."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(first - (ends - count), count))


def explore(
    start: int, successors: Callable[[Int[np.ndarray, " n"]], Int[np.ndarray, " m"]]
) -> Int[np.ndarray, " reached"]:
    """Every key reachable from `start`, breadth first, in order of discovery.

    The order depends on the graph alone and not on the numbering of its keys, so it is a canonical numbering.
    """
    seen = {start}
    frontier = np.array([start], dtype=np.int64)
    found = [frontier]
    while frontier.size:
        keys, first = np.unique(successors(frontier), return_index=True)
        fresh = [key for key in keys[np.argsort(first)].tolist() if key not in seen]
        seen.update(fresh)
        frontier = np.array(fresh, dtype=np.int64)
        found.append(frontier)
    return np.concatenate(found)


def position_in(keys: Int[np.ndarray, " keys"], wanted: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """Where each wanted key, known to be there, stands in `keys`."""
    order = np.argsort(keys)
    return order[np.searchsorted(keys, wanted, sorter=order)]


def letters(
    table: Int[np.ndarray, "states vocabulary"],
) -> tuple[Int[np.ndarray, " vocabulary"], Int[np.ndarray, " n"]]:
    """Tokens that act alike on every state are one letter: the letter of each token, one token of each letter.

    A vocabulary of 50,000 often has a few dozen letters, and products and minimisation then cost that much less.
    """
    seen: dict[bytes, int] = {}
    letter = np.array([seen.setdefault(column.tobytes(), len(seen)) for column in np.ascontiguousarray(table.T)])
    _, token = np.unique(letter, return_index=True)
    return letter.astype(np.int64), token
