"""What is predicted and what sees what: masks by hand, and properties for all draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox

from ebar.data.targets import corrupt, draw_ranks, draw_targets, hidden_by_order, share_targets


def flags(*rows: str) -> np.ndarray:
    return np.array([[symbol == "x" for symbol in row] for row in rows])


def generator(seed: int = 0) -> Generator:
    return Generator(Philox(seed))


def test_masks_by_hand():
    """Places 0 … 4: 1 and 3 are targets, 4 is functional; ranks 9, 2, 9, 1, 3.

    0 and 2 stand before all, so all see them and they see neither target. 3 comes first: it sees 0 and 2. 1 sees 0, 2
    and 3. The functional one comes last: it sees all, itself included.
    """
    hidden = hidden_by_order(np.array([[9, 2, 9, 1, 3]]), flags(".x.x."), flags("....x"))
    assert hidden.tolist() == [
        [
            [False, True, False, True, True],
            [False, True, False, False, True],
            [False, True, False, True, True],
            [False, True, False, True, True],
            [False, False, False, False, False],
        ]
    ]


def test_the_order_from_left_to_right_with_all_targets_is_the_strict_lower_triangle():
    hidden = hidden_by_order(np.arange(6)[None], np.ones((1, 6), bool), np.zeros((1, 6), bool))
    assert np.array_equal(~hidden[0], np.tril(np.ones((6, 6), bool), -1))


def test_functional_tokens_keep_their_ranks_among_targets():
    """Functional 0 of rank 0, target 1 of rank 1, functional 2 of rank 2: each sees what is lower."""
    hidden = hidden_by_order(np.array([[0, 1, 2]]), flags(".x."), flags("x.x"))
    assert (~hidden[0]).astype(int).tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 1]]


def test_blocks_are_shuffled_alike_and_follow_one_another():
    ranks = draw_ranks(3, 12, 4, generator())
    for row in ranks:
        first = row[:4]
        assert sorted(first) == [0, 1, 2, 3]
        assert row.tolist() == [*first, *(first + 4), *(first + 8)]
    assert len({tuple(row) for row in draw_ranks(20, 12, None, generator())}) > 15
    assert sorted(draw_ranks(1, 7, 3, generator())[0] // 3) == [0, 0, 0, 1, 1, 1, 2]  # the last block is shorter


@given(st.integers(0, 2**32), st.integers(1, 40), st.data())
def test_no_target_sees_itself_and_nothing_leaks_back(seed, places, data):
    """Whatever reaches a prediction, through any number of layers, is neither the target nor ranked after it."""
    drawn = generator(seed)
    kinds = drawn.random((2, places))
    functional = kinds < 0.15
    targets = (kinds > data.draw(st.floats(0.15, 1))) & ~functional
    ranks = draw_ranks(2, places, data.draw(st.integers(1, 40)), drawn)
    hidden = hidden_by_order(ranks, targets, functional)
    for row in range(2):
        sees = ~hidden[row] | np.eye(places, dtype=bool)  # content sees itself
        for _ in range(6):  # through layers
            sees = (sees.astype(int) @ sees.astype(int)) > 0
        for target in np.flatnonzero(targets[row]):
            direct = ~hidden[row, target]
            assert not direct[target]
            reached = sees[direct].any(0)
            later = (targets[row] | functional[row]) & (ranks[row] >= ranks[row, target])
            assert not reached[later].any()
            assert direct[~targets[row] & ~functional[row]].all()  # sees all that is not predicted


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 8), st.booleans(), st.data())
def test_as_many_targets_as_asked_for_none_of_them_special(seed, places, context, spans, data):
    drawn = generator(seed)
    starts, functional = drawn.random((2, 3, places)) < data.draw(st.sampled_from([0.0, 0.3, 0.9]))
    room = int((~functional).sum(1).min())
    number = data.draw(st.integers(0, room))
    targets = draw_targets(starts, functional, number, context=context if spans else None, generator=drawn)
    assert (targets.sum(1) == number).all()
    assert not (targets & functional).any()


def test_spans_begin_at_words_and_have_up_to_five_tokens():
    """200 tokens, a word every fourth; without room for singles every run of targets begins a word."""
    starts = np.tile(flags("x..."), (400, 50))
    none = np.zeros_like(starts)
    targets = draw_targets(starts, none, 10, context=6, generator=generator())
    sizes = []
    for row in targets:
        padded = np.diff(np.concatenate([[0], row.astype(int), [0]]))
        begins, ends = np.flatnonzero(padded == 1), np.flatnonzero(padded == -1)
        assert (begins % 4 == 0).all()
        sizes += [*(ends - begins)]
    counts = np.bincount(sizes, minlength=6)
    assert counts[0] == 0
    assert counts[1] > counts[2] > counts[3]  # ∝ 1/n, but for those that the number of targets cuts short
    assert len(counts) == 6


def test_a_span_has_its_length_times_k_tokens_round_it():
    """Of single-token words: n tokens and n·K others, so about one in K + 1 up to the last span is a target."""
    starts = np.ones((2000, 400), bool)
    targets = draw_targets(starts, np.zeros_like(starts), 20, context=6, generator=generator())
    last = 400 - targets[:, ::-1].argmax(1)
    assert 20 / last.mean() == pytest.approx(1 / 7, rel=0.1)


def test_a_span_ends_before_a_special_token():
    starts, functional = flags("x....."), flags("..x...")
    for seed in range(50):
        targets = draw_targets(starts, functional, 2, context=1, generator=generator(seed))
        assert not targets[0, 2]


def test_one_in_k_shared_by_the_parts():
    assert share_targets(512, 256, 6) == (43, 42)  # as Yang et al. 2019 have it
    assert share_targets(128, 64, 6) == (11, 10)
    assert share_targets(128, 0, 6) == (0, 21)
    assert share_targets(16, 8, 1) == (8, 5)  # all but SEP, SEP and CLS
    assert share_targets(8, 2, 100) == (1, 0)


def test_corruption_by_shares():
    """80 % masks, 10 % drawn, 10 % as they were, of 200,000 targets: 5 standard deviations are 0.0045."""
    tokens = np.full((400, 1000), 7)
    targets = np.tile(flags("x."), (400, 500))
    found = corrupt(tokens, targets, mask=99, size=50, generator=generator())
    assert (found[~targets] == 7).all()
    at = found[targets]
    assert (at == 99).mean() == pytest.approx(0.8, abs=0.0045)
    assert (at == 7).mean() == pytest.approx(0.1 + 0.1 / 50, abs=0.0045)
    assert set(at) == {99, *range(50)}
