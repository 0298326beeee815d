"""A text begins as the tokenizer's own decode does: a blank that its encode puts in front is no part of it."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch

from ebar.automata.lift import Reading
from ebar.data.tokenisers import Alphabet, Bytes, reading_of_space
from ebar.errors import UserError
from ebar.features.feature import Feature, bind
from ebar.features.functions import Predicate, TextScore
from ebar.features.regular import Expression, Motif, StartsWith, Word, whole
from ebar.types import Space
from tests.features.test_bound import sequences

SPELLINGS = [b" a", b"a", b" ", b"B", None, b"", None]
END = 6
BARE = Reading(end=END, longest=4, spellings=SPELLINGS, drops_blank=True)
ROWS = [[*row, END] for size in range(4) for row in product(range(6), repeat=size)]


def as_decoded(tokens: list[int]) -> str:
    """What a tokenizer that adds a blank makes of tokens: all that they spell, without one blank in front."""
    return b"".join(SPELLINGS[token] or b"" for token in tokens).decode().removeprefix(" ")


def test_the_text_is_that_of_the_tokenizer_and_after_a_prompt_the_blank_counts() -> None:
    assert BARE.text([0, 0, END]) == "a a"
    assert BARE.text([2, 0]) == " a"  # only one blank is left out
    assert BARE.text([4, 0]) == "a"  # a token that spells nothing is no beginning
    assert replace(BARE, before="x").text([0, 0]) == " a a"
    assert replace(BARE, drops_blank=False).text([0, 0]) == " a a"
    for reads in (True, False):  # whether features look at it or not, what follows a prompt is no beginning
        assert BARE.going_on_from("x", 3, reads_prompt=reads).text([0, 0]) == " a a"
    assert BARE.going_on_from("", 3, reads_prompt=True).text([0, 0]) == "a a"


@pytest.mark.parametrize(
    ("feature", "holds"),
    [
        (whole("[a-z].*"), lambda text: re.fullmatch("[a-z].*", text) is not None),
        (whole("a( a)*"), lambda text: re.fullmatch("a( a)*", text) is not None),
        (whole(""), lambda text: text == ""),
        (StartsWith(" a"), lambda text: text.startswith(" a")),
        (Motif(" a"), lambda text: " a" in text),
        (Motif("aB", absent=True), lambda text: "aB" not in text),
        (Word("a"), lambda text: re.search(r"\ba\b", text) is not None),
        (Expression("aa|B"), lambda text: re.search("aa|B", text) is not None),
        (Predicate(lambda text: text[:1] == "a"), lambda text: text[:1] == "a"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_automata_follow_the_text_without_its_first_blank(feature: Feature, holds: Callable[[str], bool]) -> None:
    """On all 259 sequences of up to three tokens."""
    found = bind(feature, BARE)(sequences(ROWS))
    assert found.tolist() == [float(holds(as_decoded(row[:-1]))) for row in ROWS]
    texts = [BARE.text(row) for row in ROWS]
    assert texts == [as_decoded(row[:-1]) for row in ROWS]


def test_it_is_seen_from_the_tokeniser() -> None:
    class Pieces(Alphabet):
        def spellings(self) -> list[bytes | None]:
            return [b" a", b" ", b"b"]

        def decode(self, tokens: list[int]) -> str:
            spelt = b"".join(self.spellings()[token] or b"" for token in tokens).decode()
            return spelt.removeprefix(" ") if self.unknown else spelt

    space = Space(4, 3, 3)
    assert reading_of_space(Pieces("xyz", unknown=True), space).drops_blank
    assert not reading_of_space(Pieces("xyz"), space).drops_blank
    assert not reading_of_space(Bytes(), Space(256, 3)).drops_blank


def test_a_score_that_is_not_a_number_is_refused_as_a_predicate_is() -> None:
    for feature in (TextScore(lambda texts: [torch.nan] * len(texts)), Predicate(lambda text: torch.nan)):
        with pytest.raises(UserError, match=r"is nan on .*outside its bounds"):
            bind(feature, BARE)(sequences(ROWS[:3]))
