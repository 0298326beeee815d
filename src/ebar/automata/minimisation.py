"""The coarsest partition of an automaton's states that its transitions respect."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Int


def coarsest(
    table: Int[np.ndarray, "states letters"], accepting: Bool[np.ndarray, " states"]
) -> Int[np.ndarray, " states"]:
    """The block of each state, such that states share a block exactly when no string tells them apart.

    Hopcroft's rule, a round at a time: when a block splits, its largest part keeps the name, and only
    predecessors of renamed states are looked at again. A state is renamed at most log₂(states) times, so the
    work is O(letters · states · log states) however many rounds there are. Plain Python on purpose: a chain of
    10,000 states has 10,000 rounds of a state or two each, where calls into numpy would cost far more.
    """
    rows = table.tolist()
    before: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            before[target].append(state)
    block = accepting.astype(int).tolist()
    members: list[set[int]] = [set(np.flatnonzero(~accepting).tolist()), set(np.flatnonzero(accepting).tolist())]
    touched: Iterable[int] = range(len(rows))
    while touched:
        # Untouched states of a block agree with each other and with no touched one, which sees a fresh name.
        parts: dict[tuple[int, ...], list[int]] = {}
        for state in touched:
            parts.setdefault((block[state], *[block[target] for target in rows[state]]), []).append(state)
        by_block: dict[int, list[list[int]]] = {}
        for signature, part in parts.items():
            by_block.setdefault(signature[0], []).append(part)
        renamed: list[int] = []
        for name, split in by_block.items():
            split.sort(key=len)
            if 2 * len(split[-1]) > len(members[name]) or sum(map(len, split)) == len(members[name]):
                kept = split.pop()
                rest = members[name].difference(kept, *split)
                members[name] = set(kept)
                split.append(list(rest))
            else:
                members[name].difference_update(*split)
            for part in split:
                if part:
                    for state in part:
                        block[state] = len(members)
                    members.append(set(part))
                    renamed += part
        touched = {source for state in renamed for source in before[state]}
    return np.unique(np.array(block), return_inverse=True)[1].ravel()
