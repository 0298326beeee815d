"""The tree of all spellings of a vocabulary: what tokens have in common at their beginning is read once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from ebar.automata.deterministic import ranges


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """Nodes are beginnings of spellings, shorter ones first; node 0 is the empty one. Children stand side by side."""

    symbol: Int[np.ndarray, " nodes"]  # the last one of each beginning
    first: Int[np.ndarray, " nodes"]  # child
    count: Int[np.ndarray, " nodes"]  # of children
    node: Int[np.ndarray, " tokens"]  # where the spelling of each token ends; 0 for one that spells nothing
    spelt: Bool[np.ndarray, " tokens"]  # whether a token has a spelling at all, if only an empty one

    @staticmethod
    def of(spellings: Sequence[Sequence[int] | None]) -> "Trie":
        """From the spelling of each token, in symbols of an alphabet or in bytes."""
        lengths = np.array([len(spelling or ()) for spelling in spellings], dtype=np.int64)
        flat = _flat(spellings)
        begin = np.cumsum(lengths) - lengths
        node = np.zeros(len(lengths), dtype=np.int64)
        symbols, parents = [np.zeros(1, dtype=np.int64)], [np.full(1, -1)]
        width, nodes = int(flat.max(initial=0)) + 1, 1
        running, place = np.flatnonzero(lengths > 0), 0
        while running.size:
            found, at = np.unique(node[running] * width + flat[begin[running] + place], return_inverse=True)
            node[running] = nodes + at.ravel()
            parents.append(found // width)
            symbols.append(found % width)
            nodes += len(found)
            place += 1
            running = running[lengths[running] > place]
        parent = np.concatenate(parents)
        count = np.bincount(parent[1:], minlength=nodes)
        first = 1 + np.cumsum(count) - count  # children are numbered in the order of their parents
        spelt = np.array([spelling is not None for spelling in spellings], dtype=bool)
        parts = [part.astype(np.int32) for part in (np.concatenate(symbols), first, count, node)]
        return Trie(parts[0], parts[1], parts[2], parts[3], spelt)

    @property
    def nodes(self) -> int:
        return len(self.symbol)

    def children(
        self, nodes: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " children"], Int[np.ndarray, " children"]]:
        """All children of some nodes, and for each which of these nodes it belongs to."""
        count = self.count[nodes]
        return ranges(self.first[nodes], count), np.repeat(np.arange(len(nodes)), count)


def _flat(spellings: Sequence[Sequence[int] | None]) -> Int[np.ndarray, " symbols"]:
    """All spellings end to end."""
    if all(isinstance(spelling, bytes | None) for spelling in spellings):
        joined = b"".join(bytes(spelling) for spelling in spellings if spelling is not None)
        return np.frombuffer(joined, dtype=np.uint8).astype(np.int64)
    return np.array([symbol for spelling in spellings for symbol in spelling or ()], dtype=np.int64)
