"""From the text of a regular expression to its tree.

    a  \\.  \\n  \\x41  \\u00e9    a character; punctuation is escaped with a backslash
    .  \\d \\w \\s \\D \\W \\S      any character of the alphabet; the ASCII classes and what they leave out
    [a-z_]  [^0-9]             a class, and what a class leaves out
    xy   x|y   x&y             one after the other; either; both at once (& binds tighter than |)
    x*  x+  x?  x{n}  x{n,}  x{n,m}  x{,m}
    ~x                         whatever x is not; ~ab* is (~a)(b*) and ~a* is ~(a*)
    (x)   ()                   a group; the empty string

The whole string is matched, so there are no anchors, and no captures, look-around or lazy repetition either.

Sets of characters are sorted, disjoint, inclusive intervals of code points: all of Unicode is two of them.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, no_type_check

from ebar.errors import UserError

Charset = tuple[tuple[int, int], ...]

UNICODE: Charset = ((0, 0xD7FF), (0xE000, 0x10FFFF))  # surrogates are no characters


def charset(intervals: Iterable[tuple[int, int]]) -> Charset:
    """Intervals in any order, merged where they touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Charset, right: Charset) -> Charset:
    """The characters of both."""
    common = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return charset((low, high) for low, high in common if low <= high)


def difference(left: Charset, right: Charset) -> Charset:
    """The characters of `left` that are not in `right`."""
    gaps, low = [], 0
    for first, last in right:
        gaps.append((low, first - 1))
        low = last + 1
    gaps.append((low, 0x10FFFF))
    return intersection(left, tuple((a, b) for a, b in gaps if a <= b))


def partition(sets: Iterable[Charset], universe: Charset) -> tuple[dict[Charset, int], list[Charset]]:
    """The universe cut into classes no set tells apart: for each set the bit mask of its classes, and the classes."""
    distinct = list(dict.fromkeys([universe, *sets]))
    cuts = sorted({cut for chars in distinct for low, high in chars for cut in (low, high + 1)})
    membership = [0] * len(cuts)  # of the piece that starts at each cut, one bit per set
    for bit, chars in enumerate(distinct):
        for low, high in chars:
            for piece in range(bisect_left(cuts, low), bisect_left(cuts, high + 1)):
                membership[piece] |= 1 << bit
    pieces: dict[int, list[tuple[int, int]]] = {}
    for piece, member in enumerate(membership):
        if member & 1:
            pieces.setdefault(member, []).append((cuts[piece], cuts[piece + 1] - 1))
    masks = {
        chars: sum(1 << index for index, member in enumerate(pieces) if member >> bit & 1)
        for bit, chars in enumerate(distinct)
    }
    return masks, [charset(intervals) for intervals in pieces.values()]


DEEPEST = 50  # nested groups: each costs a few frames of Python's own stack
SPECIAL = ".|&*+?{}[]()~^$\\"
CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
CLASSES: dict[str, Charset] = {
    "d": charset([(48, 57)]),
    "w": charset([(48, 57), (65, 90), (95, 95), (97, 122)]),
    "s": charset([(9, 13), (32, 32)]),
}


class Chars(NamedTuple):
    """One character out of a set."""

    chars: Charset


class Chain(NamedTuple):
    """One after the other."""

    parts: "tuple[Tree, ...]"


class Either(NamedTuple):
    """Any of several."""

    parts: "tuple[Tree, ...]"


class Both(NamedTuple):
    """All of several at once."""

    parts: "tuple[Tree, ...]"


class Other(NamedTuple):
    """Every string but these."""

    part: "Tree"


class Repeat(NamedTuple):
    """Between `low` and `high` times, None being no bound."""

    part: "Tree"
    low: int
    high: int | None


Tree = Chars | Chain | Either | Both | Other | Repeat


def parse_expression(text: str, universe: Charset) -> Tree:
    """The tree of an expression over the characters of `universe`; a bad one is an error that names the position."""
    parser = _Parser(text, universe)
    tree = parser.either()
    if parser.at < len(text):
        parser.fail("there is no group to close here")
    return tree


@no_type_check  # at run time: it holds no shapes and is called for every character
@dataclass(slots=True)
class _Parser:
    text: str
    universe: Charset
    at: int = 0
    depth: int = 0

    def fail(self, why: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        where = f"at position {at} ({self.text[at]!r})" if at < len(self.text) else "at its end"
        raise UserError(f"The regular expression {shortened(self.text)} is wrong {where}: {why}.")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> bool:
        found = self.text.startswith(expected, self.at)
        self.at += len(expected) * found
        return found

    def either(self) -> Tree:
        parts = [self.both()]
        while self.take("|"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def both(self) -> Tree:
        parts = [self.chain()]
        while self.take("&"):
            parts.append(self.chain())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def chain(self) -> Tree:
        parts: list[Tree] = []
        while self.peek() not in ("", "|", "&", ")"):
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def item(self) -> Tree:
        flip = False
        while self.take("~"):
            flip = not flip
        tree = self.atom()
        if self.peek() and self.peek() in "*+?{":
            tree = Repeat(tree, *self.bounds())
            if self.peek() and self.peek() in "*+?{":
                self.fail("a repetition cannot be repeated without a group around it")
        return Other(tree) if flip else tree

    def atom(self) -> Tree:
        opened, symbol = self.at, self.peek()
        if symbol in ("", "|", "&", ")"):
            self.fail("'~' has nothing to apply to")
        if symbol == "(":
            self.at += 1
            self.depth += 1
            if self.depth > DEEPEST:
                self.fail(f"groups are nested more than {DEEPEST} deep", opened)
            tree = self.either()
            if not self.take(")"):
                self.fail("the group opened here is never closed", opened)
            self.depth -= 1
            return tree
        if symbol == "[":
            return Chars(self.bracket())
        if symbol == ".":
            self.at += 1
            return Chars(self.universe)
        if symbol in "*+?{":
            self.fail(f"there is nothing to repeat; for the character itself write \\{symbol}")
        if symbol in "^$":
            self.fail(f"the whole string is matched and needs no anchor; for the character itself write \\{symbol}")
        if symbol in "]}":
            self.fail(f"nothing is open here; for the character itself write \\{symbol}")
        return Chars(self.known(self.character(), opened))

    def known(self, chars: Charset, at: int) -> Charset:
        """A single character must be in the alphabet; of a class, what lies outside is left out."""
        if len(chars) == 1 and chars[0][0] == chars[0][1] and not intersection(chars, self.universe):
            self.fail(f"the alphabet has no {chr(chars[0][0])!r}", at)
        return intersection(chars, self.universe)

    def character(self) -> Charset:
        """A literal or an escape."""
        opened, symbol = self.at, self.peek()
        self.at += 1
        if symbol != "\\":
            return ((ord(symbol), ord(symbol)),)
        escape = self.peek()
        self.at += 1
        if escape == "":
            self.fail("a backslash ends the expression", opened)
        if escape in CLASSES:
            return CLASSES[escape]
        if escape.lower() in CLASSES:
            return difference(self.universe, CLASSES[escape.lower()])
        if escape in CONTROL:
            return ((ord(CONTROL[escape]),) * 2,)
        if escape in "xu":
            digits = self.text[self.at : self.at + (2 if escape == "x" else 4)]
            if len(digits) < (2 if escape == "x" else 4) or any(c not in "0123456789abcdefABCDEF" for c in digits):
                self.fail(f"\\{escape} needs {'two' if escape == 'x' else 'four'} hexadecimal digits", opened)
            self.at += len(digits)
            return ((int(digits, 16),) * 2,)
        if escape.isalnum():
            self.fail(f"there is no escape \\{escape}", opened)
        return ((ord(escape),) * 2,)

    def bracket(self) -> Charset:
        opened = self.at
        self.at += 1
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        first = self.at
        while self.peek() != "]":
            if not self.peek():
                self.fail("the class opened here is never closed", opened)
            at = self.at
            chars = self.character()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                last = self.character()
                if any(c in CLASSES.values() or len(c) != 1 or c[0][0] != c[0][1] for c in (chars, last)):
                    self.fail("a range needs a single character on each side", at)
                if last[0][0] < chars[0][0]:
                    self.fail("the range runs backwards", at)
                chars = intersection(((chars[0][0], last[0][0]),), self.universe)
            found.extend(self.known(chars, at))
        if self.at == first:
            self.fail("the class is empty", opened)
        self.at += 1
        chars = charset(found)
        return difference(self.universe, chars) if negated else chars

    def bounds(self) -> tuple[int, int | None]:
        for symbol, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(symbol):
                return low, high
        opened = self.at
        closed = self.text.find("}", opened)
        pieces = self.text[opened + 1 : closed].split(",") if closed > 0 else []
        plain = all(len(piece) <= 9 and all(c in "0123456789" for c in piece) for piece in pieces)
        if not 1 <= len(pieces) <= 2 or not plain or not any(pieces):
            self.fail("a bounded repetition is {n}, {n,}, {,m} or {n,m}; for the character itself write \\{", opened)
        self.at = closed + 1
        low = int(pieces[0] or 0)
        high = low if len(pieces) == 1 else int(pieces[1]) if pieces[1] else None
        if high is not None and high < low:
            self.fail(f"the repetition's bounds {low} and {high} are in the wrong order", opened)
        return low, high


def shortened(text: str) -> str:
    """An expression as an error quotes it."""
    return repr(text) if len(text) <= 60 else repr(text[:57] + "…")
