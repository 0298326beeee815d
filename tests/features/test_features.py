import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.automata.motif import ends_with
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Feature, Features, Followed
from ebar.features.functions import Predicate
from ebar.features.regular import Accepted, Expression, Motif, StartsWith
from ebar.maths.enumeration import all_sequences
from ebar.types import Context, Sequences, Space

ENDING = Space(vocabulary=3, length=8, end=2)
FIXED = Space(vocabulary=2, length=7)
WORDS = {"ending": (all_sequences(ENDING), ENDING), "fixed": (all_sequences(FIXED), FIXED)}


def texts(x: Sequences, space: Space) -> list[str]:
    return ["".join("01"[t] for t in x.prefix(row) if t != space.end) for row in range(len(x.lengths))]


def overlapping(ngram: str, text: str) -> int:
    return sum(text.startswith(ngram, place) for place in range(len(text)))


def examples(end: int | None) -> list[tuple[Any, Callable[[str], float]]]:
    """Each feature beside what Python's own strings say of it."""
    whole: Any = {"alphabet": "01", "end": end}
    longest = 8 if end is not None else 7
    return [
        (Motif(motif="101", **whole), lambda s: "101" in s),
        (Motif(motif="101", absent=True, **whole), lambda s: "101" not in s),
        (Expression(expression="1(00)+1", **whole), lambda s: bool(re.search("1(00)+1", s))),
        (Expression(expression="1(00)+1", absent=True, **whole), lambda s: not re.search("1(00)+1", s)),
        (Expression(expression="0*10*", whole=True, **whole), lambda s: s.count("1") == 1),
        (StartsWith(prefix="01", **whole), lambda s: s.startswith("01")),
        (StartsWith(prefix="1", absent=True, **whole), lambda s: not s.startswith("1")),
        (NgramCount(ngram="11", longest=longest, **whole), lambda s: overlapping("11", s)),
        (NgramCount(ngram="010", longest=longest, **whole), lambda s: overlapping("010", s)),
        (Length(longest=longest, end=end), lambda s: len(s) + (end is not None)),
        (Accepted(name="ends in 10", automaton=ends_with([1, 0], 2), end=end), lambda s: s.endswith("10")),
        (Predicate(name="odd", function=lambda tokens: sum(tokens) % 2, end=end), lambda s: s.count("1") % 2),
    ]  # fmt: skip


@pytest.mark.parametrize("space", WORDS)
@pytest.mark.parametrize("index", range(12))
def test_every_feature_is_what_pythons_own_strings_say(space, index):
    x, where = WORDS[space]
    feature, wanted = examples(where.end)[index]
    assert isinstance(feature, Feature)
    # Padding must not matter, were it even a motif.
    padded = Sequences(torch.where(x.mask(), x.tokens, 1), x.lengths)
    for batch in (x, padded):
        assert feature(batch).tolist() == [float(wanted(text)) for text in texts(x, where)]


@pytest.mark.parametrize("space", WORDS)
@pytest.mark.parametrize("index", range(11))
def test_bounds_hold_and_are_reached(space, index):
    x, where = WORDS[space]
    feature = examples(where.end)[index][0]
    values = feature(x)
    assert float(values.max()) == feature.high
    assert float(values.min()) >= feature.low
    if not isinstance(feature, Length):
        assert float(values.min()) == feature.low


def test_features_of_regular_languages_can_be_followed():
    x, where = WORDS["ending"]
    followed: list[Any] = [feature for feature, _ in examples(where.end) if isinstance(feature, Followed)]
    assert len(followed) == 8
    for feature in followed:
        assert torch.equal(feature(x), feature.automaton.accepts(x, where.end).double())


def test_an_automaton_is_built_once():
    motif = Motif(motif="1011", alphabet="01", end=2)
    assert motif.automaton is Motif(motif="1011", alphabet="01", end=None).automaton


@settings(max_examples=50)
@given(st.text("01", min_size=1, max_size=4), st.integers(1, 7))
def test_the_bound_of_a_count_is_the_least(ngram, length):
    x = all_sequences(Space(2, length))
    feature = NgramCount(ngram=ngram, alphabet="01", end=None, longest=length)
    assert float(feature(x).max()) == feature.high


def test_names_tell_features_apart():
    names = [feature.name for feature, _ in examples(2)]
    assert len(set(names)) == len(names)
    assert names[:2] == ["motif 101", "no motif 101"]


def x_of(*rows: list[int]) -> Sequences:
    width = max(len(row) for row in rows)
    return Sequences(
        torch.tensor([row + [0] * (width - len(row)) for row in rows]), torch.tensor([len(r) for r in rows])
    )


def test_a_predicate_may_read_decoded_text():
    decode = Alphabet("abc").decode
    feature = Predicate(name="has b", function=lambda text: "b" in text, end=3, decode=decode)
    assert feature(x_of([0, 1, 3], [2, 3])).tolist() == [1.0, 0.0]


def test_a_predicate_may_look_at_the_context():
    feature = Predicate(name="same", function=lambda tokens, given: tokens == given, end=2, conditional=True)
    context = Context(x_of([0, 1], [1]))
    values = Features([feature])(x_of([0, 1, 2], [1, 2], [0, 1, 2], [1, 2]), context)
    assert values[:, 0].tolist() == [1.0, 0.0, 0.0, 1.0]  # two draws for each of two contexts
    with pytest.raises(UserError, match="'same' looks at the context, and there is none"):
        feature(x_of([0, 2]))


def test_a_predicate_that_raises_names_the_feature_and_the_sequence():
    def fussy(tokens):
        if tokens == [1, 1]:
            raise KeyError("eleven")
        return True

    with pytest.raises(UserError, match=r"Feature 'fussy' raised KeyError: 'eleven' on the sequence \[1, 1, 2\]\."):
        Predicate(name="fussy", function=fussy, end=2)(x_of([0, 2], [1, 1, 2]))


def test_a_predicate_that_is_no_number_names_the_feature_and_the_sequence():
    with pytest.raises(UserError, match=r"Feature 'none' raised TypeError.* on the sequence \[0\]"):
        Predicate(name="none", function=lambda tokens: None, end=None)(x_of([0]))


def test_a_predicate_outside_its_bounds_is_an_error():
    assert Predicate(name="sum", function=sum, end=None, high=9.0)(x_of([2, 2])).tolist() == [4.0]
    for function in (sum, lambda tokens: math.nan):
        with pytest.raises(UserError, match=r"on the sequence \[2, 2\], outside its bounds 0.0 and 1.0"):
            Predicate(name="sum", function=function, end=None)(x_of([2, 2]))


class Counting:
    name, low, high = "counting", 0.0, 9.0

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x, context=None):
        self.calls += 1
        return x.lengths.double() + (0 if context is None else context.given.lengths.double())


def test_a_feature_is_evaluated_once_per_sample():
    feature = Counting()
    features = Features([feature])
    x = x_of([0, 1], [1])
    assert features(x).tolist() == [[2.0], [1.0]]
    assert features(Sequences(*x)).tolist() == [[2.0], [1.0]]
    assert feature.calls == 1


def test_a_feature_is_evaluated_again_when_anything_it_sees_changes():
    feature = Counting()
    features = Features([feature])
    x = x_of([0, 1], [1])
    features(x)
    x.tokens[0, 0] = 1
    features(x)
    assert feature.calls == 2
    x.lengths[1] = 2
    assert features(x).tolist() == [[2.0], [2.0]]
    for length in (1, 2, 1, 2):  # a new tensor may stand where an old one stood
        assert features(Sequences(x.tokens, torch.tensor([1, length]))).tolist() == [[1.0], [float(length)]]
    context = Context(x_of([0]))
    assert features(x, context).tolist() == [[3.0], [3.0]]
    assert features(x).tolist() == [[2.0], [2.0]]


def test_values_are_forgotten_with_their_sample():
    features = Features([Counting()])
    x = x_of([0, 1])
    features(x, Context(x))  # even when the context is the sample itself
    assert len(features._kept) == 1
    del x
    assert len(features._kept) == 0


def test_samples_drawn_in_inference_mode_are_evaluated_too():
    with torch.inference_mode():
        x = x_of([0, 1])
    assert Features([Counting()])(x).tolist() == [[2.0]]


def test_a_feature_that_is_not_finite_is_named():
    class Broken(Counting):
        name = "broken"

        def __call__(self, x, context=None):
            return torch.full((len(x.lengths),), math.nan)

    with pytest.raises(UserError, match=r"Feature 'broken' is not finite on the sequence \[0, 1\]"):
        Features([Broken()])(x_of([0, 1]))


def test_no_features_are_a_table_without_columns():
    assert Features([])(x_of([0], [1])).shape == (2, 0)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (Motif(motif="102", alphabet="01", end=2), "'2' at position 2 of '102'"),
        (Motif(motif="", alphabet="01", end=2), "at least one token"),
        (NgramCount(ngram="", alphabet="01", end=2, longest=5), "at least one token"),
        (Expression(expression="1(0", alphabet="01", end=2), "position 1"),
    ],
)
def test_a_feature_that_makes_no_sense_says_so(feature, message):
    with pytest.raises(UserError, match=re.escape(message)):
        feature(x_of([0, 1, 2]))
