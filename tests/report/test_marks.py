"""What is marked is where the features are."""

from typing import Any

import pytest

from ebar.data.tokenisers import Alphabet
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Feature
from ebar.features.functions import Predicate
from ebar.features.regular import Expression, Motif, StartsWith
from ebar.report.plots import occurrences, spans_in, title_of

BITS = Alphabet("01")
WORDS: dict[str, Any] = {"alphabet": "01", "end": 2}
MOTIF, ABSENT = Motif(motif="11", **WORDS), Motif(motif="11", absent=True, **WORDS)
START = StartsWith(prefix="01", absent=True, **WORDS)
EXPRESSION = Expression(expression="01+", **WORDS)
PALINDROME = Predicate(name="palindrome", function=lambda text: text == text[::-1], end=2, decode=BITS.decode)


@pytest.mark.parametrize(
    ("line", "feature", "spans"),
    [
        ("0111", MOTIF, [(1, 3), (2, 4)]),
        ("0111", ABSENT, [(1, 3), (2, 4)]),  # the thing itself is marked, also where its absence is the feature
        ("0000", MOTIF, []),
        ("0111", START, [(0, 2)]),
        ("1101", START, []),
        ("01100101", EXPRESSION, [(0, 3), (4, 6), (6, 8)]),  # the longest match, then the next
        ("011", Expression(expression="01+", whole=True, **WORDS), [(0, 3)]),
        ("1011", Expression(expression="01+", whole=True, **WORDS), []),
        ("0110", Expression(expression="01+", whole=True, **WORDS), []),
        ("000", NgramCount(ngram="00", longest=4, **WORDS), [(0, 2), (1, 3)]),
        ("0110", PALINDROME, [(0, 4)]),
        ("0111", PALINDROME, []),
        ("0111", Length(longest=9, end=2), []),
        ("", EXPRESSION, []),
        ("", PALINDROME, []),
    ],
)
def test_places(line: str, feature: Feature, spans: list[tuple[int, int]]) -> None:
    assert occurrences(line, feature, BITS) == spans


def test_of_two_features_at_a_place_the_shorter_is_marked() -> None:
    assert spans_in("0110", [PALINDROME, MOTIF], BITS) == [(0, 1, 0), (1, 3, 1), (3, 4, 0)]
    assert spans_in("0010", [MOTIF], BITS) == []


def test_titles_name_the_thing_and_not_its_absence() -> None:
    assert [title_of(feature) for feature in (ABSENT, START)] == ["motif 11", "starts with 01"]
