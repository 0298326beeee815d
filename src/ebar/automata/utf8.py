"""An automaton over characters as one over the bytes of their UTF-8 encoding."""

import numpy as np
import torch
from jaxtyping import Int

from ebar.automata.charsets import Charset
from ebar.automata.deterministic import Dfa

DEAD = 0
# First lead byte and how many, continuation bytes, smallest code point: below it the encoding is overlong.
LEADS = ((0x00, 128, 0, 0), (0xC0, 32, 1, 0x80), (0xE0, 16, 2, 0x800), (0xF0, 8, 3, 0x10000))


class _Bytes:
    """Rows of the automaton over bytes, those inside a character made once for all who need the same."""

    def __init__(self, states: int):
        self.rows = [[DEAD] * 256 for _ in range(states)]
        self.known: dict[tuple[int, ...], int] = {}

    def after(self, first: int, count: int, more: int, cuts: Int[np.ndarray, " pieces"], goes: list[int]) -> list[int]:
        """Where `count` bytes lead that open blocks of 64^more characters, one after the other from `first`."""
        size = 1 << 6 * more
        starts = first + size * np.arange(count)
        low = (np.searchsorted(cuts, starts, side="right") - 1).tolist()
        high = (np.searchsorted(cuts, starts + size - 1, side="right") - 1).tolist()
        if more == 0:
            return [goes[piece] for piece in low]
        uniform = {piece: self._inside([goes[piece]] * 64, more) for piece in {*low, *high}}
        return [
            uniform[low[block]]
            if low[block] == high[block]
            else self._inside(self.after(first + size * block, 64, more - 1, cuts, goes), 1)
            for block in range(count)
        ]

    def _inside(self, targets: list[int], more: int) -> int:
        """The state that awaits `more` continuation bytes, of which the last decides."""
        state = DEAD
        for _ in range(more):
            key = tuple(targets)
            if any(key) and key not in self.known:
                self.known[key] = len(self.rows)
                self.rows.append([DEAD] * 128 + targets + [DEAD] * 64)
            state = self.known.get(key, DEAD)
            targets = [state] * 64
        return state


def to_bytes(dfa: Dfa, classes: list[Charset]) -> Dfa:
    """Accepts the UTF-8 of what `dfa`, whose letters are the classes, accepts; invalid UTF-8 leads nowhere."""
    pieces = sorted((low, high, letter) for letter, chars in enumerate(classes) for low, high in chars)
    automaton = _Bytes(dfa.states + 1)  # state s of dfa is s + 1
    cuts = np.array([0, *(cut for low, high, _ in pieces for cut in (low, high + 1))])
    for state, row in enumerate(dfa.table.tolist(), start=1):
        goes = [DEAD, *(target for _, _, letter in pieces for target in (row[letter] + 1, DEAD))]
        for lead, count, more, smallest in LEADS:
            # What lies below the smallest code point would be overlong: it collapses onto the cut, and is not found.
            starts = np.concatenate([[0], np.maximum(cuts, smallest)])
            automaton.rows[state][lead : lead + count] = automaton.after(0, count, more, starts, [DEAD, *goes])
    accepting = torch.zeros(len(automaton.rows), dtype=torch.bool)
    accepting[1 : dfa.states + 1] = dfa.accepting
    return Dfa(torch.tensor(automaton.rows), accepting, start=dfa.start + 1).minimised()
