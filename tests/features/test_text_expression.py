import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.errors import UserError
from ebar.features.feature import Feature, Followed
from ebar.features.text_expression import TextExpression
from ebar.features.text_score import TextScore
from ebar.types import Sequences

# Whole words, parts of words, a blank of its own, two bytes of one character, a special token, the end.
SPELLINGS = [b"a", b"b", b"ab", b" ", b"ba ", "é".encode()[:1], "é".encode()[1:], None, b"", None]
END = 9


def sequences(rows: list[list[int]]) -> Sequences:
    width = max([len(row) for row in rows] or [0])
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.long).reshape(len(rows), width)
    return Sequences(tokens, torch.tensor([len(row) for row in rows], dtype=torch.long))


def spelt(tokens: list[int]) -> bytes:
    return b"".join(SPELLINGS[token] or b"" for token in tokens)


def value(tokens: list[int], expression: str, where: str = "anywhere", **options: object) -> float:
    chosen = {"where": where, **options}
    feature = TextExpression(expression=expression, spellings=SPELLINGS, end=END, **chosen)  # type: ignore[arg-type]
    return float(feature(sequences([tokens]))[0])


def is_text(tokens: list[int]) -> bool:
    try:
        spelt(tokens).decode()
    except UnicodeDecodeError:
        return False
    return True


WORDS = st.lists(st.integers(0, 8), max_size=7)
VALID = WORDS.filter(is_text)


@settings(max_examples=200)
@given(VALID, st.sampled_from(["ab", "a|bb", "b{2,3}", "aé", "é ?b", "[^a]a", "a.b"]))
def test_it_agrees_with_python_on_text(tokens: list[int], expression: str) -> None:
    text = spelt(tokens).decode()
    # Words are of ASCII letters here, as \w of the syntax is.
    word = rf"(?:\A|(?<=[^a-zA-Z0-9_]))(?:{expression})(?=[^a-zA-Z0-9_]|\Z)"
    assert value(tokens, expression) == (re.search(expression, text) is not None)
    assert value(tokens, expression, "word") == (re.search(word, text) is not None)
    assert value(tokens, expression, "whole") == (re.fullmatch(expression, text) is not None)
    assert value(tokens, expression, absent=True) == (re.search(expression, text) is None)


@settings(max_examples=100)
@given(VALID, VALID, st.sampled_from(["ab", "é", "b b"]), st.sampled_from(["anywhere", "word", "whole"]))
def test_what_stands_before_is_matched_too(first: list[int], rest: list[int], expression: str, where: str) -> None:
    before = spelt(first).decode()
    assert value(rest, expression, where, before=before) == value(first + rest, expression, where)


@settings(max_examples=100)
@given(WORDS)
def test_bytes_that_are_no_text_match_nothing_and_only_interrupt(tokens: list[int]) -> None:
    expected = any("ab" in part for part in re.split("\ufffd", spelt(tokens).decode(errors="replace")))
    assert value(tokens, "ab") == expected


def test_by_hand() -> None:
    lead, rest = 5, 6
    assert value([2], "ab") == value([0, 1], "ab") == value([0, 7, 1], "ab") == value([0, 8, 1, END], "ab") == 1
    assert value([lead, rest], "é") == 1
    assert value([lead], "é") == value([rest], "é") == value([lead, 0], "é") == 0
    assert value([0, lead, 1], "ab") == 0  # nothing reaches over a broken character
    assert value([2, lead], "ab") == value([lead, 2], "ab") == value([rest, rest, 2, lead], "ab") == 1
    assert value([2, lead], ".*ab.*", "whole") == 0
    assert value([2, lead, rest], ".*ab.*", "whole") == 1
    assert value([2, 1], "ab", "word") == 0
    assert value([2, 3, 1], "ab", "word") == value([1, 3, 2], "ab", "word") == 1
    assert value([END], "a*") == 1


def test_it_is_a_feature_an_automaton_follows() -> None:
    feature = TextExpression(expression="ab", spellings=SPELLINGS, end=END)
    assert isinstance(feature, Feature)
    assert isinstance(feature, Followed)
    assert feature.automaton.vocabulary == len(SPELLINGS)
    names = {
        TextExpression(expression="ab", spellings=SPELLINGS, end=END, where=where, absent=absent).name
        for where in ("anywhere", "word", "whole")
        for absent in (False, True)
    }
    assert len(names) == 6


@pytest.mark.parametrize("expression", ["(", "a)|(b", "[z-a]", "a{2"])
def test_an_expression_that_is_none_is_one_sentence(expression: str) -> None:
    for where in ("anywhere", "word"):
        with pytest.raises(UserError) as raised:
            value([0], expression, where)
        assert repr(expression) in str(raised.value)


def score(function: object, **options: object) -> TextScore:
    decode = lambda tokens: spelt(tokens).decode(errors="replace")  # noqa: E731
    return TextScore(name="length", function=function, decode=decode, end=END, **options)  # type: ignore[arg-type]


def test_a_score_sees_all_texts_at_once_without_their_end() -> None:
    seen: list[list[str]] = []

    def lengths(texts: list[str]) -> list[float]:
        seen.append(texts)
        return [len(text) / 10 for text in texts]

    x = sequences([[0, 1, END], [2, 3, 2]])
    assert score(lengths)(x).tolist() == [0.2, 0.5]
    assert score(lengths, before="a ")(x).tolist() == [0.4, 0.7]
    assert seen == [["ab", "ab ab"], ["a ab", "a ab ab"]]


def test_a_score_out_of_its_bounds_or_number_is_told() -> None:
    x = sequences([[0], [1, 1]])
    with pytest.raises(UserError, match=r"is 2\.0 on 'bb', outside its bounds 0 and 1"):
        score(lambda texts: [float(len(text)) for text in texts])(x)
    with pytest.raises(UserError, match=r"of 2 texts must have shape \[2\], not \[1\]"):
        score(lambda texts: [0.5])(x)
    assert score(lambda texts: [float(len(text)) for text in texts], high=2.0)(x).tolist() == [1, 2]
