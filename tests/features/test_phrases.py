"""Keyphrases in order, numbers of words, templates and suffixes, against what Python says of every short text."""

import re
from itertools import product

import pytest
import torch

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.features import FEATURES, EndsWith, Ordered, Template, WordCount, bind
from ebar.types import Sequences

ALPHABET = "ab .\n"
TEXTS = ["".join(text) for length in range(6) for text in product(ALPHABET, repeat=length)]
# Tokens of several characters, one that holds a piece of a character, and the end.
SPELLINGS = [b"a", b"b", b" ", b".", b"\n", b"a b", b"\xc3", None]


def values(feature: object) -> list[bool]:
    rows = [[ALPHABET.index(character) for character in text] + [7] for text in TEXTS]
    tokens = torch.tensor([row + [0] * (6 - len(row)) for row in rows])
    bound = bind(feature, Reading(spellings=SPELLINGS, end=7, longest=6))
    return [value > 0 for value in bound(Sequences(tokens, torch.tensor([len(row) for row in rows]))).tolist()]


def test_a_suffix():
    assert values(EndsWith("b a")) == [text.endswith("b a") for text in TEXTS]


@pytest.mark.parametrize("absent", [False, True])
def test_keyphrases_in_order(absent):
    found = values(Ordered("a...b+", absent=absent))
    wanted = [re.search(r"\ba\b.*\bb+\b", text, re.DOTALL) is not None for text in TEXTS]
    assert sum(wanted) > 50
    assert found == [one is not absent for one in wanted]


@pytest.mark.parametrize(
    ("words", "low", "high"), [("2", 2, 2), ("1-2", 1, 2), ("2-", 2, 9), ("-1", 0, 1), ("0", 0, 0), ("0-2", 0, 2)]
)
def test_numbers_of_words(words, low, high):
    assert values(WordCount(words)) == [low <= len(text.encode().split()) <= high for text in TEXTS]


@pytest.mark.parametrize(
    ("template", "expression"),
    [("a{}b", "a.*b"), ("{[ab]{2}}.{ ?}", r"[ab]{2}\. ?"), ("{}", ".*"), ("a b.", r"a b\."), ("", "")],
)
def test_templates(template, expression):
    wanted = [re.fullmatch(expression, text, re.DOTALL) is not None for text in TEXTS]
    assert any(wanted)
    assert values(Template(template)) == wanted


def test_braces_of_a_template_and_other_characters():
    bound = bind(Template("{{é}} + {\\d}"), Reading(spellings=[bytes([byte]) for byte in range(256)], end=None))
    for text, value in (("{é} + 7", 1), ("{é} + 77", 0), ("é + 7", 0), ("{é}  7", 0)):
        row = torch.tensor([list(text.encode())])
        assert float(bound(Sequences(row, torch.tensor([row.shape[1]])))) == value


@pytest.mark.parametrize(
    ("feature", "reason"),
    [
        (Ordered("a... "), "one here is empty"),
        (Ordered("a...(b"), "never closed"),
        (WordCount("3-2"), "as in 20, 20-30, 20- or -30"),
        (WordCount("many"), "as in 20, 20-30, 20- or -30"),
        (Template("a {b"), "never closed: write {{ for a brace"),
        (Template("a} b"), "never opened"),
        (Template("{(a} b"), "never closed"),
        (EndsWith(""), "at least one token"),
    ],
)
def test_mistakes_are_one_sentence(feature, reason):
    with pytest.raises(UserError, match=re.escape(reason)):
        bind(feature, Reading(spellings=SPELLINGS, end=7))


@pytest.mark.parametrize(
    ("kind", "argument", "name"),
    [
        ("ends_with", "suffix", "ends with b"),
        ("ordered", "keyphrases", "ordered b"),
        ("word_count", "words", "b words"),
    ],
)
def test_they_have_names_on_the_command_line(kind, argument, name):
    assert FEATURES.make(kind, {argument: "b"}).name == name
