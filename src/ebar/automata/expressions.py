"""Regular expressions as automata: over an alphabet of one-character tokens, or over text as UTF-8 bytes.

From a tree to an automaton by derivatives: the state after a letter is the expression of what may still follow.
Complement and intersection cost no more than union, and a bounded repetition is counted down, never written out.
Derivatives of a chain are kept as sets of alternatives, so there are no more states than subsets of the terms.
Brzozowski 1964; Antimirov 1996.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Int

from ebar.automata import syntax
from ebar.automata.deterministic import Dfa, automaton_of, hopeless_state, letters
from ebar.errors import UserError

STATES = 20_000  # before minimisation
WORK = 1_500_000  # terms handled: a second or two


@no_type_check  # at run time: these hold no shapes and are made by the million
@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """What may still follow; made by `TermAlgebra`, which gives equal terms one identity."""

    kind: str  # letter, empty, chain, either, both, other, repeat
    nullable: bool  # may the string end here?
    parts: "tuple[Term, ...]" = ()
    mask: int = 0  # of the classes, for a letter
    low: int = 0  # for a repeat
    high: int | None = None


@no_type_check
class TermAlgebra:
    """Simplifying constructors of terms over `classes` letters, and their derivatives."""

    def __init__(self, classes: int):
        self.work = 0
        self.known: dict[object, Term] = {}
        self.derived: dict[tuple[Term, int], Term] = {}
        self.never = self.letter(0)
        self.empty = self._known("empty", Term("empty", True))
        self.all = self.repeat(self.letter((1 << classes) - 1), 0, None)

    def _known(self, key: object, term: Term) -> Term:
        self._spend(1)
        return self.known.setdefault(key, term)

    def _spend(self, amount: int) -> None:
        self.work += amount
        if self.work > WORK:
            raise UserError("The regular expression needs too large an automaton: simplify it or repeat less.")

    def _flat(self, kind: str, term: Term) -> tuple[Term, ...]:
        parts = term.parts if term.kind == kind else (term,)
        self._spend(len(parts))
        return parts

    def letter(self, mask: int) -> Term:
        return self._known(mask, Term("letter", False, mask=mask))

    def chain(self, head: Term, tail: Term) -> Term:
        if head is self.never or tail is self.never:
            return self.never
        heads = []
        while head.kind == "chain":  # to the right, so that a derivative looks at one head
            heads.append(head.parts[0])
            head = head.parts[1]
        heads.append(head)
        self._spend(len(heads))
        for first in reversed(heads):
            if tail.kind == "empty":
                tail = first
            elif first.kind != "empty" and not (first is tail is self.all):
                parts = (first, tail)
                tail = self._known(parts, Term("chain", first.nullable and tail.nullable, parts))
        return tail

    def either(self, terms: list[Term]) -> Term:
        flat = {part for term in terms for part in self._flat("either", term)}
        letters = {part for part in flat if part.kind == "letter"}
        rest = flat - letters
        mask = 0
        for part in letters:
            mask |= part.mask
        if mask:
            rest.add(self.letter(mask))
        if self.all in rest:
            return self.all
        if self.empty in rest and sum(part.nullable for part in rest) > 1:
            rest.discard(self.empty)
        if len(rest) < 2:
            return rest.pop() if rest else self.never
        nullable = any(part.nullable for part in rest)
        return self._known(("either", frozenset(rest)), Term("either", nullable, tuple(rest)))

    def both(self, terms: list[Term]) -> Term:
        rest = {part for term in terms for part in self._flat("both", term)} - {self.all}
        if self.never in rest:
            return self.never
        if len(rest) < 2:
            return rest.pop() if rest else self.all
        nullable = all(part.nullable for part in rest)
        if self.empty in rest:
            return self.empty if nullable else self.never
        return self._known(("both", frozenset(rest)), Term("both", nullable, tuple(rest)))

    def other(self, term: Term) -> Term:
        if term is self.never:
            return self.all
        if term is self.all:
            return self.never
        if term.kind == "other":
            return term.parts[0]
        return self._known(("other", term), Term("other", not term.nullable, (term,)))

    def repeat(self, term: Term, low: int, high: int | None) -> Term:
        if term.kind == "empty" or high == 0:
            return self.empty
        if term is self.never:
            return self.empty if low == 0 else term
        if term.kind == "repeat" and term.low <= 1:  # (x{0,a}){0,b} leaves no gaps: it is x{0,ab}
            low, high = low * term.low, None if high is None or term.high is None else high * term.high
            term = term.parts[0]
        low = 0 if term.nullable else low
        if low == high == 1:
            return term
        return self._known(("repeat", term, low, high), Term("repeat", low == 0, (term,), low=low, high=high))

    def derivative(self, term: Term, letter: int) -> Term:
        """What may follow once `letter` has been read."""
        key = (term, letter)
        if key not in self.derived:
            self._spend(1)
            self.derived[key] = self._derivative(term, letter)
        return self.derived[key]

    def _derivative(self, term: Term, letter: int) -> Term:
        match term.kind:
            case "letter":
                return self.empty if term.mask >> letter & 1 else self.never
            case "empty":
                return self.never
            case "repeat":
                rest = self.repeat(term.parts[0], max(term.low - 1, 0), None if term.high is None else term.high - 1)
                return self._before(self.derivative(term.parts[0], letter), rest)
            case "other":
                return self.other(self.derivative(term.parts[0], letter))
            case "both":
                return self.both([self.derivative(part, letter) for part in term.parts])
            case "either":
                return self.either([self.derivative(part, letter) for part in term.parts])
        ways = []
        while term.kind == "chain":
            self._spend(1)
            head, tail = term.parts
            ways.append(self._before(self.derivative(head, letter), tail))
            if not head.nullable:
                return self.either(ways)
            term = tail
        return self.either([*ways, self.derivative(term, letter)])

    def _before(self, term: Term, tail: Term) -> Term:
        return self.either([self.chain(part, tail) for part in self._flat("either", term)])


def automaton(tree: syntax.Tree, universe: syntax.Charset, *, anywhere: bool) -> tuple[Dfa, list[syntax.Charset]]:
    """The minimal automaton of a tree over classes of characters that it need not tell apart, and the classes."""
    masks, classes = syntax.partition(_charsets(tree), universe)
    terms = TermAlgebra(len(classes))
    start = _term(tree, terms, masks)
    if anywhere:
        start = terms.chain(terms.all, terms.chain(start, terms.all))
    number, queue, rows = {start: 0}, [start], []
    for term in queue:
        row = []
        for letter in range(len(classes)):
            after = terms.derivative(term, letter)
            if after not in number:
                number[after] = len(queue)
                queue.append(after)
            row.append(number[after])
        rows.append(row)
        if len(queue) > STATES:
            raise UserError(f"The regular expression needs over {STATES} states: simplify it or repeat less.")
    table = torch.from_numpy(np.array(rows, dtype=np.int64).reshape(len(queue), len(classes)))
    return Dfa(table, torch.tensor([term.nullable for term in queue])).minimised(), classes


def _charsets(tree: syntax.Tree) -> list[syntax.Charset]:
    if isinstance(tree, syntax.Chars):
        return [tree.chars]
    if isinstance(tree, syntax.Other | syntax.Repeat):
        return _charsets(tree.part)
    return list(dict.fromkeys(chars for part in tree.parts for chars in _charsets(part)))


def _term(tree: syntax.Tree, terms: TermAlgebra, masks: dict[syntax.Charset, int]) -> Term:
    match tree:
        case syntax.Chars(chars):
            return terms.letter(masks[chars])
        case syntax.Chain(parts):
            chained = terms.empty
            for part in reversed(parts):
                chained = terms.chain(_term(part, terms, masks), chained)
            return chained
        case syntax.Either(parts):
            return terms.either([_term(part, terms, masks) for part in parts])
        case syntax.Both(parts):
            return terms.both([_term(part, terms, masks) for part in parts])
        case syntax.Other(part):
            return terms.other(_term(part, terms, masks))
        case syntax.Repeat(part, low, high):
            return terms.repeat(_term(part, terms, masks), low, high)


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
    universe = syntax.charset((ord(symbol), ord(symbol)) for symbol in alphabet)
    dfa, classes = automaton(syntax.parse_expression(expression, universe), universe, anywhere=anywhere)
    letter = {
        code: index for index, chars in enumerate(classes) for low, high in chars for code in range(low, high + 1)
    }
    columns = torch.tensor([letter[ord(symbol)] for symbol in alphabet])
    return Dfa(dfa.moves[:, columns].contiguous(), dfa.accepting)


def compile_text(expression: str, *, anywhere: bool = False) -> Dfa:
    """The same over all of Unicode, as an automaton over the 256 bytes of UTF-8.

    It accepts valid UTF-8 only. `lift` turns it into one over the tokens of any vocabulary, also of one whose
    tokens hold parts of a character.
    """
    dfa, classes = automaton(syntax.parse_expression(expression, syntax.UNICODE), syntax.UNICODE, anywhere=anywhere)
    return _to_bytes(dfa, classes)


class _Blocks:
    """Which class of characters bytes lead to, whatever the state: rows of targets, those inside a character made once.

    Targets are 0 for what is no character, then the classes, then rows, in the order in which they are made: a row
    comes after all that it leads to.
    """

    def __init__(self, classes: int):
        self.first = 1 + classes
        self.rows: list[list[int]] = []
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
        """The row that awaits `more` continuation bytes, of which the last decides."""
        row = DEAD
        for _ in range(more):
            key = tuple(targets)
            if any(key) and key not in self.known:
                self.known[key] = self.first + len(self.rows)
                self.rows.append([DEAD] * 128 + targets + [DEAD] * 64)
            row = self.known.get(key, DEAD)
            targets = [row] * 64
        return row


def _to_bytes(dfa: Dfa, classes: list[syntax.Charset]) -> Dfa:
    """Accepts the UTF-8 of what `dfa`, minimal and with the classes as letters, accepts; invalid UTF-8 leads nowhere.

    Where a byte leads depends on the state only through the class that a character turns out to be in. So the blocks
    of characters are cut up once, and then followed from all states together. States are told apart as they are made,
    from the end of a character to its beginning, so the result is minimal too: what follows in the midst of a
    character begins with as many continuation bytes as are missing.
    """
    pieces = sorted((low, high, letter) for letter, chars in enumerate(classes) for low, high in chars)
    cuts = np.array([0, *(cut for low, high, _ in pieces for cut in (low, high + 1))])
    goes = [DEAD, DEAD, *(target for _, _, letter in pieces for target in (letter + 1, DEAD))]
    blocks = _Blocks(len(classes))
    lead = [DEAD] * 256
    for first, count, more, smallest in LEADS:
        # What lies below the smallest code point would be overlong: it collapses onto the cut, and is not found.
        starts = np.concatenate([[0], np.maximum(cuts, smallest)])
        lead[first : first + count] = blocks.after(0, count, more, starts, goes)
    letter, byte = letters(np.array([lead, *blocks.rows]))
    rows = np.array([lead, *blocks.rows])[:, byte]
    moves, accepting = dfa.moves.numpy(), dfa.accepting.numpy()
    sink = hopeless_state(dfa)
    number = np.cumsum(np.arange(dfa.states) != sink)  # of each state, from 1 on
    if sink is not None:
        number[sink] = DEAD
    table, known = [[DEAD] * len(byte)] * (1 + int(number.max())), {}
    leads_to = np.zeros((blocks.first + len(blocks.rows), dfa.states), dtype=np.int64)
    leads_to[1 : blocks.first] = number[moves].T
    for row, targets in enumerate(rows[1:]):
        for state, after in enumerate(leads_to[targets].T.tolist()):
            key = tuple(after)
            if any(key) and key not in known:
                known[key] = len(table)
                table.append(after)
            leads_to[blocks.first + row, state] = known.get(key, DEAD)
    for state, after in enumerate(leads_to[rows[0]].T.tolist()):
        if number[state]:
            table[number[state]] = after
    flags = np.zeros(len(table), dtype=bool)
    flags[number] = accepting
    return _in_order(table, flags, int(number[dfa.start]), letter)


def _in_order(
    table: list[list[int]], accepting: Bool[np.ndarray, " states"], start: int, letter: Int[np.ndarray, " bytes"]
) -> Dfa:
    """With the states that can be reached, breadth first, as `minimised` numbers them."""
    number, queue = {start: 0}, [start]
    for state in queue:
        for target in table[state]:
            if target not in number:
                number[target] = len(queue)
                queue.append(target)
    moves = np.array([[number[target] for target in table[state]] for state in queue])
    again, first = letters(moves)
    return automaton_of(moves[:, first], accepting[queue], again[letter], whole=False)
