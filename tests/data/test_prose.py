"""WikiText's spellings undone, and sentences and documents found, all by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebar.data.prose import documents, is_title, plain_wikitext, sentences


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (" a tactical role @-@ playing game . \n", "a tactical role-playing game ."),
        (" 1 @,@ 000 copies at $ 3 @.@ 5 \n", "1,000 copies at $ 3.5"),
        (" Senjō no Valkyria 3 : <unk> Chronicles \n", "Senjō no Valkyria 3 : Chronicles"),
        ("<unk> said <unk> .", "said ."),
        (" = Valkyria Chronicles III = \n", "Valkyria Chronicles III"),
        (" = = = Characters = = = \n", "Characters"),
        (" x = y = 2 \n", "x = y = 2"),
        (" \n", ""),
        ("= Emma =\n", "Emma"),
        ("mail me@home.org", "mail me@home.org"),
    ],
)
def test_wikitext_by_hand(line, expected):
    assert plain_wikitext(line) == expected


def test_titles_are_headings_of_the_first_level():
    assert is_title(" = Emma = \n")
    assert not is_title(" = = Emma = = \n")
    assert not is_title("Emma")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("It rained. She left!", ["It rained.", " She left!"]),
        ("“Why?” He ran.", ["“Why?”", " He ran."]),
        ('He said "Go." (It was late.) Then', ['He said "Go."', " (It was late.)", " Then"]),
        ("Mr. Weston met Mrs. Elton and Dr. J. Ames.", ["Mr. Weston met Mrs. Elton and Dr. J. Ames."]),
        ("3.5 of 1.000 went. 7 stayed", ["3.5 of 1.000 went.", " 7 stayed"]),
        ("the game . Released in", ["the game .", " Released in"]),
        ("no. lower case", ["no. lower case"]),
        ("", []),
    ],
)
def test_sentences_by_hand(line, expected):
    assert sentences(line) == expected


@given(st.text(alphabet="aA .!?\"'\n1", max_size=40))
def test_sentences_make_up_the_line(line):
    found = sentences(line)
    assert "".join(found) == line
    assert all(found)


def test_documents_end_at_empty_lines():
    lines = ["One.\n", " two \n", "\n", "   \n", "Three\n"]
    assert list(documents(lines)) == [("One.", True), ("two", False), ("Three", True)]


def test_documents_of_wikitext_begin_with_their_titles():
    lines = [" \n", " = A = \n", " \n", " a @-@ b \n", " \n", " = = Section = = \n", " <unk> \n", " = B = \n", " c \n"]
    assert list(documents(lines, wikitext=True)) == [
        ("A", True), ("a-b", False), ("Section", False), ("B", True), ("c", False),
    ]  # fmt: skip
