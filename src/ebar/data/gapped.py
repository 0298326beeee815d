"""Texts with gaps, `He had not been to ___ since the ___ .`, in the tokens of a tokeniser.

A gap is one word of some number of pieces; `___:3` is one of three pieces. The first piece of a word and those after it
are told apart by the blank before a word, which its first piece carries in byte-pair encoding and unigram pieces.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool
from torch import Tensor

from ebar.data.tokenisers import REPLACEMENT, UNKNOWN, Spells, Tokeniser
from ebar.errors import UserError

GAP = re.compile(r"___(?::(\d+))?")
LETTERS = re.compile(r"[\w'’\-]*")


@dataclass(frozen=True)
class Gapped:
    """A text cut at its gaps."""

    text: str
    tokeniser: Tokeniser
    vocabulary: int  # of the model, special tokens counted

    @cached_property
    def fragments(self) -> list[str]:
        """What stands before, between and after the gaps: one more than there are gaps."""
        return GAP.split(self.text)[::2]

    @cached_property
    def fixed(self) -> list[int | None]:
        """How many pieces each gap has, where it is said."""
        return [None if number is None else int(number) for number in GAP.split(self.text)[1::2]]

    def check(self) -> None:
        """A text without a gap, or one that its tokens do not spell, is refused."""
        if not self.fixed:
            raise UserError(f"There is no gap in {self.text!r}: write ___ where a word is missing.")
        if any(number == 0 for number in self.fixed):
            raise UserError("A gap has at least one piece: write ___:1 or more.")
        if not self.spells and any(number not in (None, 1) for number in self.fixed):
            raise UserError("The tokens of this run are whole words: a gap has one piece, ___ or ___:1.")
        for fragment in self.fragments:
            spelt = self.tokeniser.decode(self.tokeniser.encode(fragment)) if fragment.strip() else ""
            for mark in (UNKNOWN, REPLACEMENT):
                if mark in spelt and mark not in fragment:
                    raise UserError(f"{fragment.strip()!r} has what the tokeniser has no token for: leave it out.")

    @property
    def spells(self) -> bool:
        return isinstance(self.tokeniser, Spells)

    def tokens(self) -> list[list[int]]:
        """Of each fragment. A blank that a word carries before it is the gap's, not the fragment's."""
        found = []
        for number, fragment in enumerate(self.fragments):
            last = number == len(self.fragments) - 1
            own = fragment if last or not self._carried else fragment.rstrip(" ")
            found.append(self._encoded(own, first=number == 0))
        return found

    def pieces(self, gap: int, number: int) -> Bool[Tensor, "pieces vocabulary"]:
        """Which tokens may stand in each place of a gap of so many pieces."""
        starts, within = self._kinds
        first = starts if self._blank_before(gap) else within
        return torch.stack([first, *[within] * (number - 1)])

    def word(self, gap: int, pieces: Sequence[int]) -> str | None:
        """The word that pieces spell in a gap; None where they spell none, or its pieces would be others."""
        if not self.spells:
            whole = self.tokeniser.decode(list(pieces))
            return whole if whole.strip() and whole != UNKNOWN else None
        spelt = b"".join(self._spellings[piece] or b"" for piece in pieces)
        word = spelt.decode(errors="replace").removeprefix(" ")
        if not LETTERS.fullmatch(word) or not any(letter.isalnum() for letter in word):
            return None
        blank = " " if self._blank_before(gap) and not self._prefixed else ""
        own = self._encoded(blank + word, first=self._blank_before(gap))
        return word if own == list(pieces) else None

    def filled(self, words: Sequence[str]) -> str:
        """The text with its words."""
        return "".join(part for pair in zip(self.fragments, [*words, ""], strict=True) for part in pair)

    @cached_property
    def _spellings(self) -> list[bytes | None]:
        known = self.tokeniser.spellings() if isinstance(self.tokeniser, Spells) else []
        return [*known, *[None] * self.vocabulary][: self.vocabulary]

    @cached_property
    def _carried(self) -> bool:
        """Whether pieces carry the blank before a word."""
        return any(spelling is not None and len(spelling) > 1 and spelling[:1] == b" " for spelling in self._spellings)

    @cached_property
    def _prefixed(self) -> bool:
        """Whether the tokeniser writes a blank before the first word of a text too, as SentencePiece does."""
        first = self.tokeniser.encode("a")[:1] if self._carried else []
        return any((self._spellings[token] or b"").startswith(b" ") for token in first)

    def _blank_before(self, gap: int) -> bool:
        before = self.fragments[gap]
        return self._carried and (before.endswith(" ") or (gap == 0 and not before and self._prefixed))

    def _encoded(self, text: str, *, first: bool) -> list[int]:
        if not text:
            return []
        if not self._prefixed or first:
            return self.tokeniser.encode(text)
        if text.startswith(" "):
            return self.tokeniser.encode(text[1:]) if len(text) > 1 else []
        alone, both = self.tokeniser.encode("a"), self.tokeniser.encode("a" + text)
        return both[len(alone) :] if both[: len(alone)] == alone else self.tokeniser.encode(text)

    @cached_property
    def _kinds(self) -> tuple[Bool[Tensor, " vocabulary"], Bool[Tensor, " vocabulary"]]:
        """Tokens that start a word with its blank, and tokens that spell letters without one."""
        if not self.spells:
            every = torch.arange(self.vocabulary) < self.tokeniser.size
            return every, every
        starts, within = [], []
        for spelling in self._spellings:
            blank = spelling is not None and spelling[:1] == b" "
            letters = spelling is not None and _is_letters(spelling[1:] if blank else spelling)
            starts.append(blank and letters)
            within.append(not blank and letters and bool(spelling))
        return torch.tensor(starts), torch.tensor(within)


def _is_letters(spelling: bytes) -> bool:
    """Letters, digits, apostrophes and hyphens, or parts of such characters."""
    return LETTERS.fullmatch(spelling.decode(errors="ignore")) is not None
