"""Where in a text its tokens stand: tokens with the first character of each and the one after its last."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol, runtime_checkable

from ebar.data.tokenisers import Alphabet, Spells, Tokeniser, Words
from ebar.errors import UserError

WORD = re.compile(r"\n|\S+")  # what Words makes a token of
PIECE = re.compile(r"\s*\S+|\s+$")


@runtime_checkable
class Locates(Protocol):
    """A tokeniser that tells where in the text its tokens stand."""

    def locate(self, text: str) -> list[tuple[int, int]]:
        """For each token of `encode(text)`, its first character and the one after its last."""


class Located(NamedTuple):
    """The tokens of a text and where they stand in it; blanks at the ends of a token are left out."""

    tokens: list[int]
    characters: list[tuple[int, int]]

    def covering(self, first: int, end: int) -> tuple[int, int]:
        """The first and last of the tokens that have a character of [first, end), or of the nearest before them."""
        inside = [place for place, (low, high) in enumerate(self.characters) if low < end and high > first]
        if not inside:  # characters that are in no token, such as blanks
            before = [place for place, (low, _) in enumerate(self.characters) if low <= first]
            inside = [before[-1] if before else 0]
        return inside[0], inside[-1]


def located(tokeniser: Tokeniser, text: str) -> Located:
    """Exact for every tokeniser of ebar; for another's, exact to the word where words are encoded one by one."""
    tokens = tokeniser.encode(text)
    if isinstance(tokeniser, Locates):
        ranges = tokeniser.locate(text)
    elif isinstance(tokeniser, Alphabet):  # a character unknown to it is a token too, which spells another
        ranges = [(place, place + 1) for place in range(len(text))]
    elif isinstance(tokeniser, Words):
        ranges = [match.span() for match in WORD.finditer(text)]
    else:
        ranges = _by_spelling(tokeniser, text, tokens) or _by_pieces(tokeniser, text, tokens)
    assert len(ranges) == len(tokens)
    return Located(tokens, [_without_blanks(text, *ends) for ends in ranges])


def _by_spelling(tokeniser: Tokeniser, text: str, tokens: Sequence[int]) -> list[tuple[int, int]] | None:
    """By the bytes that tokens spell one after another; a token that is a part of a character has the whole of it."""
    if not isinstance(tokeniser, Spells):
        return None
    spellings = tokeniser.spellings()
    spelt = [spellings[token] or b"" for token in tokens]
    if b"".join(spelt) != text.encode():
        return None
    owner = [place for place, character in enumerate(text) for _ in character.encode()]
    ends = [0, *accumulate(map(len, spelt))]
    return [
        (owner[low], owner[high - 1] + 1) if low < high else (_at(owner, low), _at(owner, low))
        for low, high in pairwise(ends)
    ]


def _at(owner: list[int], place: int) -> int:
    return owner[place] if place < len(owner) else (owner[-1] + 1 if owner else 0)


def _by_pieces(tokeniser: Tokeniser, text: str, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Words with the blanks before them, each encoded alone: their tokens are the text's, or nothing is known."""
    found: list[int] = []
    ranges: list[tuple[int, int]] = []
    for match in PIECE.finditer(text):
        own = tokeniser.encode(match[0])
        found += own
        ranges += [match.span()] * len(own)
    if found != list(tokens):
        raise UserError(
            f"{type(tokeniser).__name__} does not tell where in a text its tokens stand, which spans need: "
            "give it a method `locate`, or take another tokeniser."
        )
    return ranges


def _without_blanks(text: str, first: int, end: int) -> tuple[int, int]:
    own = text[first:end]
    if not own.strip():
        return first, end
    return first + len(own) - len(own.lstrip()), end - len(own) + len(own.rstrip())
