"""The vocabulary, worked out by hand."""

import math

import pytest
import torch

from ebar.maths.enumeration import all_sequences, number_of_sequences
from ebar.models.stepwise import belongs
from ebar.types import Context, Estimate, Sequences, Space, context_rows, spread


def test_an_estimate_is_never_shown_without_its_interval() -> None:
    assert str(Estimate(0.5, 0.25, 0.75, 12.4)) == "0.5 [0.25, 0.75] (95%, ESS 12)"
    assert str(Estimate(0.5, 0.25, 0.75, 12.4, "too few")) == "0.5 [0.25, 0.75] (95%, ESS 12)  ⚠ too few"
    assert str(Estimate.exact(0.5)) == "0.5 (exact)"
    # Measured without spread is not known without error.
    assert str(Estimate(math.inf, math.inf, math.inf, 3, "infinite")) == "inf [inf, inf] (95%, ESS 3)  ⚠ infinite"


def test_sequences_join_to_the_longest_and_padding_is_masked() -> None:
    short = Sequences(torch.tensor([[1, 2]]), torch.tensor([2]))
    long = Sequences(torch.tensor([[0, 0, 2]]), torch.tensor([3]))
    joined = Sequences.join([short, long])
    assert joined.tokens.tolist() == [[1, 2, 0], [0, 0, 2]]
    assert joined.mask().tolist() == [[True, True, False], [True, True, True]]
    assert joined.prefix(0) == [1, 2]
    assert joined.repeat(2).lengths.tolist() == [2, 2, 3, 3]
    assert joined.select(slice(1)).trimmed().tokens.tolist() == [[1, 2]]
    assert joined.trimmed().tokens.tolist() == joined.tokens.tolist()
    assert joined.select(slice(0)).trimmed().tokens.shape == (0, 0)


def test_contexts_are_spread_context_major() -> None:
    context = Context(Sequences(torch.tensor([[5], [7]]), torch.tensor([1, 1])))
    spread_out = spread(context, 6)
    assert spread_out is not None
    assert spread_out.given.tokens[:, 0].tolist() == [5, 5, 5, 7, 7, 7]
    assert (context_rows(None), context_rows(context)) == (1, 2)
    with pytest.raises(ValueError, match="5 sequences cannot be shared evenly among 2 contexts"):
        spread(context, 5)


def test_two_letters_and_an_end_in_three_places_make_seven_sequences() -> None:
    space = Space(3, 3, end=2)  # ε, 0, 1, 00, 01, 10, 11
    everything = all_sequences(space)
    assert number_of_sequences(space) == len(everything.lengths) == 7
    assert everything.lengths.tolist() == [1, 2, 2, 3, 3, 3, 3]
    assert bool(belongs(everything, space).all())
    assert number_of_sequences(Space(3, 3)) == 27


@pytest.mark.parametrize(
    ("tokens", "length", "inside"),
    [([0, 2, 0], 2, True), ([0, 0, 0], 3, False), ([2, 2, 0], 2, False), ([0, 0, 2], 3, True), ([0, 0, 2], 2, False)],
)
def test_a_sequence_belongs_when_its_only_end_is_its_last_token(tokens: list[int], length: int, inside: bool) -> None:
    x = Sequences(torch.tensor([tokens]), torch.tensor([length]))
    assert bool(belongs(x, Space(3, 3, end=2))[0]) is inside
