"""Features of a sequence given its source."""

import pytest
import torch

from ebar.automata.lift import Reading
from ebar.build.terms import read_feature
from ebar.errors import UserError
from ebar.features.feature import bind, negated
from ebar.features.regular import Agreement, UnboundError
from ebar.testing import check_feature
from ebar.types import Context, Sequences, Space

SPACE = Space(vocabulary=4, length=4, end=3)
READING = Reading(alphabet="ab ", end=3, longest=4)
SOURCES = Reading(spellings=[b"a", b"b", b"ba", None], end=3, longest=3)
CONTEXT = Context(Sequences(torch.tensor([[2, 3], [1, 3]]), torch.tensor([2, 2])))  # "ba" and "b"


def agreement(words: str) -> Agreement:
    found = bind(read_feature(words), READING)
    assert isinstance(found, Agreement)
    return found.bind_source(SOURCES)


def test_both_or_neither_by_hand() -> None:
    x = Sequences(torch.tensor([[0, 3], [1, 3], [0, 3], [1, 3]]), torch.tensor([2, 2, 2, 2]))  # a, b | a, b
    assert agreement("agrees:a")(x, CONTEXT).tolist() == [1, 0, 0, 1]  # "ba" has an a, "b" has none
    assert agreement("!agrees:a")(x, CONTEXT).tolist() == [0, 1, 1, 0]
    assert agreement("agrees:a=>b")(x, CONTEXT).tolist() == [0, 1, 1, 0]
    assert agreement("agrees:a=>b").name == "agrees on a=>b"
    assert negated(agreement("agrees:a")) == agreement("!agrees:a")


def test_it_keeps_the_laws_of_features() -> None:
    check_feature(agreement("agrees:a|b=>b"), SPACE, CONTEXT)
    check_feature(agreement("!agrees:a"), SPACE, CONTEXT)


def test_without_a_source_there_is_nothing_to_agree_with() -> None:
    x = Sequences(torch.tensor([[0, 3]]), torch.tensor([2]))
    with pytest.raises(UnboundError):
        Agreement("a")(x)
    with pytest.raises(UserError, match="compares with a source"):
        bind(Agreement("a"), READING)(x)
    with pytest.raises(UserError, match="compares with a source"):
        agreement("agrees:a")(x)
    assert agreement("agrees:a").bind(SOURCES) == agreement("agrees:a")
