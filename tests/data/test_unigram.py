"""Unigram pieces: exact spelling of every text, the same tokeniser each time, and the likeliest pieces by hand."""

import json
import weakref
from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebar.automata.lift import byte_level
from ebar.data.built_tokeniser import Unigram, read_tokeniser
from ebar.errors import UserError
from ebar.testing import check_tokeniser

pytest.importorskip("tokenizers")

WORDS = ["".join(word) for word in product(("ba", "de", "no", "ki"), ("ra", "mo", "ti"), ("", "s", "ing"))]
TEXTS = [" ".join(WORDS[start::step]) + "." for start, step in product(range(6), range(1, 6))]


@cache
def made_once() -> Unigram:
    return Unigram.train(TEXTS, 300)


@pytest.fixture(scope="module")
def tokeniser() -> Unigram:
    return made_once()


def test_laws(tokeniser):
    check_tokeniser(tokeniser)
    check_tokeniser(tokeniser, TEXTS)
    assert 257 < tokeniser.size <= 300


@given(st.text(max_size=40))
def test_every_text_comes_back(text):
    made = made_once()
    tokens = made.encode(text)
    assert made.decode(tokens) == text
    spelt = made.spellings()
    assert b"".join(spelt[token] or b"" for token in tokens) == text.encode()  # whatever stands beside them


def test_it_is_the_same_each_time_and_read_back(tokeniser):
    assert Unigram.train(iter(TEXTS), 300) == tokeniser
    assert read_tokeniser(tokeniser.to_json()) == tokeniser


def test_the_likeliest_pieces_by_hand(tokeniser):
    """With ab → −1, a → −1, b → −1, c → −1: "abc" is ab·c (−2), not a·b·c (−3); with ab → −5 it is a·b·c."""
    described = json.loads(tokeniser.model)
    alphabet = [piece for piece, _ in described["model"]["vocab"] if len(piece) == 1]
    for score, expected in ((-1.0, [b"ab", b"c"]), (-5.0, [b"a", b"b", b"c"])):
        described["model"]["vocab"] = [["ab", score], *([piece, -1.0] for piece in alphabet)]
        made = Unigram(json.dumps(described))
        assert [made.spellings()[token] for token in made.encode("abc")] == expected


def test_words_keep_the_blank_before_them(tokeniser):
    spelt = [tokeniser.spellings()[token] for token in tokeniser.encode("bara deti")]
    assert b"".join(spelt) == b"bara deti"
    assert any(piece.startswith(b" d") for piece in spelt)
    assert byte_level(["\u0120"]) == [b" "]


def test_too_small_a_size_is_refused():
    with pytest.raises(ValueError, match="on top of 256 bytes"):
        Unigram.train(TEXTS, 256)


def test_an_empty_text_is_refused():
    with pytest.raises(UserError, match="the text is empty"):
        Unigram.train([], 300)


def test_broken_files_are_refused():
    with pytest.raises(UserError, match="no tokeniser"):
        read_tokeniser('{"kind": "unigram", "model": {}}')


class Line(str):
    """A text that can be watched: a plain string has no weak references."""


def test_texts_are_let_go_as_they_are_read():
    """Of 20,000 lines no more than a few hundred are held at a time: the library reads them in blocks."""
    held: list[weakref.ref[Line]] = []
    most = 0

    def lines() -> Iterator[str]:
        nonlocal most
        for number in range(20_000):
            line = Line(f"bara deti {number % 7} kolo")
            held.append(weakref.ref(line))
            if number % 1000 == 999:
                most = max(most, sum(each() is not None for each in held))
            yield line

    Unigram.train(lines(), 300)
    assert 0 < most < 2000
