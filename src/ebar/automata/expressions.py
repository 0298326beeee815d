"""Regular expressions as automata: over an alphabet of one-character tokens, or over text as UTF-8 bytes."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from ebar.automata.charsets import UNICODE, Charset, charset
from ebar.automata.derivatives import automaton
from ebar.automata.deterministic import Dfa
from ebar.automata.syntax import parse
from ebar.errors import UserError

DEAD = 0
# First lead byte and how many, continuation bytes, smallest code point: below it the encoding is overlong.
LEADS = ((0x00, 128, 0, 0), (0xC0, 32, 1, 0x80), (0xE0, 16, 2, 0x800), (0xF0, 8, 3, 0x10000))


def compile_expression(expression: str, alphabet: Sequence[str], *, anywhere: bool = False) -> Dfa:
    """The minimal automaton of the strings that match as a whole, or `anywhere`: that have a part which matches.

    Token i is the i-th character of the alphabet: over "01" the tokens are 0 and 1. The syntax is that of
    `ebar.automata.syntax`.
    """
    if len(set(alphabet)) != len(alphabet) or any(len(symbol) != 1 for symbol in alphabet) or not alphabet:
        raise UserError(f"An alphabet is one or more different characters, which {''.join(alphabet)!r} is not.")
    universe = charset((ord(symbol), ord(symbol)) for symbol in alphabet)
    dfa, classes = automaton(parse(expression, universe), universe, anywhere=anywhere)
    letter = {
        code: index for index, chars in enumerate(classes) for low, high in chars for code in range(low, high + 1)
    }
    columns = torch.tensor([letter[ord(symbol)] for symbol in alphabet])
    return Dfa(dfa.table[:, columns].contiguous(), dfa.accepting)


def compile_text(expression: str, *, anywhere: bool = False) -> Dfa:
    """The same over all of Unicode, as an automaton over the 256 bytes of UTF-8.

    It accepts valid UTF-8 only. `lift` turns it into one over the tokens of any vocabulary, also of one whose
    tokens hold parts of a character.
    """
    dfa, classes = automaton(parse(expression, UNICODE), UNICODE, anywhere=anywhere)
    return _to_bytes(dfa, classes)


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


def _to_bytes(dfa: Dfa, classes: list[Charset]) -> Dfa:
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
