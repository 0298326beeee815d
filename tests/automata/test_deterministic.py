from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.automata.deterministic import Dfa, product
from ebar.automata.motif import contains, ends_with, spell, starts_with
from ebar.errors import UserError
from tests.automata.strings import all_strings, batch

WORDS = all_strings(2, 7)
FUTURES = batch(all_strings(2, 8))


def language(dfa: Dfa) -> set[tuple[int, ...]]:
    flags = dfa.accepts(batch(WORDS))
    return {word for word, accepted in zip(WORDS, flags.tolist(), strict=True) if accepted}


def random_dfa(seed: int, states: int, symbols: int = 2) -> Dfa:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(states, (states, symbols), generator=generator)
    accepting = torch.rand(states, generator=generator) < 0.4
    return Dfa(table, accepting, start=seed % states)


def test_the_motif_automaton_of_0100_is_the_one_worked_out_by_hand():
    # After 010, a 1 leaves the border 01; after 0100 the longest border of 01000 is 0, of 01001 it is 01.
    assert ends_with([0, 1, 0, 0], 2).table.tolist() == [[1, 0], [1, 2], [3, 0], [4, 2], [1, 2]]
    assert contains([0, 1, 0, 0], 2).table.tolist() == [[1, 0], [1, 2], [3, 0], [4, 2], [4, 4]]


@pytest.mark.parametrize("motif", [[0], [1, 1], [0, 1, 0], [0, 0, 1, 0, 0]])
def test_motif_automata_agree_with_python_on_every_short_string(motif):
    def text(word: Sequence[int]) -> str:
        return "".join(map(str, word))

    assert language(contains(motif, 2)) == {word for word in WORDS if text(motif) in text(word)}
    assert language(ends_with(motif, 2)) == {word for word in WORDS if text(word).endswith(text(motif))}
    assert language(starts_with(motif, 2)) == {word for word in WORDS if text(word).startswith(text(motif))}


def test_counts_are_exact_integers_at_any_length():
    motif = contains(spell("10001011111000", "01"), 2)
    assert contains([1, 1], 2).count(3) == 3  # 110, 011, 111
    assert motif.count(30) == 1_113_640
    assert motif.count(1000) + (~motif).count(1000) == 2**1000
    assert motif.count(13) == 0
    assert motif.count(14) == 1
    assert contains([3], 10).count(2) == 19  # several tokens that act alike


def test_complement_union_and_intersection_are_those_of_sets():
    left, right = contains([1, 1, 0], 2), ends_with([0, 1], 2)
    assert language(~left) == set(WORDS) - language(left)
    assert language(left & right) == language(left) & language(right)
    assert language(left | right) == language(left) | language(right)


def test_a_product_of_three_tells_which_of_them_accept():
    parts = [contains([1, 1], 2), starts_with([0], 2), ends_with([0, 1], 2)]
    joint, flags = product(parts)
    at = joint.final_state(batch(WORDS))
    for index, part in enumerate(parts):
        assert torch.equal(flags[at, index], part.accepts(batch(WORDS)))
    assert torch.equal(joint.accepting, flags.all(1))
    with pytest.raises(ValueError, match="one vocabulary"):
        product([contains([0], 2), contains([0], 3)])


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), states=st.integers(1, 10))
def test_minimising_keeps_the_language_and_leaves_no_two_states_alike(seed, states):
    dfa = random_dfa(seed, states)
    small = dfa.minimised()
    assert language(small) == language(dfa)
    # Two states of an automaton with n of them are told apart by a string of at most n − 2 tokens.
    futures = {
        tuple(Dfa(small.table, small.accepting, start=state).accepts(FUTURES).tolist()) for state in range(small.states)
    }
    assert len(futures) == small.states


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_two_ways_to_one_language_minimise_to_one_table(seed, other):
    left, right = random_dfa(seed, 5), random_dfa(other, 4)
    one, two = left | right, (~(~left & ~right)).minimised()
    assert torch.equal(one.table, two.table)
    assert torch.equal(one.accepting, two.accepting)


def test_minimising_copes_with_long_chains_and_with_wide_automata():
    states = 20_000
    chain = Dfa(
        (torch.arange(states) + 1).clamp(max=states - 1)[:, None].repeat(1, 3), torch.arange(states) < states - 1
    )
    assert chain.minimised().states == states
    # 40,000 states that are ten thousand copies of a counter modulo 4.
    place = torch.arange(40_000)
    table = torch.stack([(place + 1) % 40_000, place // 4 * 4 + (place + 1) % 4], 1)
    counter = Dfa(table, place % 4 == 0).minimised()
    assert counter.table.tolist() == [[1, 1], [2, 2], [3, 3], [0, 0]]


def test_padding_and_the_end_token_are_no_part_of_a_string():
    dfa = contains([1, 1], 2)
    words = [(1, 1), (1,), (0, 1), ()]
    expected = [True, False, False, False]
    assert dfa.accepts(batch(words, padding=-7)).tolist() == expected
    assert dfa.accepts(batch(words, end=2, padding=1), end=2).tolist() == expected
    with pytest.raises(ValueError, match="vocabulary of 2"):
        dfa.accepts(batch(words, end=2))


def test_following_gives_the_state_after_each_token_and_can_be_taken_up_again():
    dfa = contains([1, 0, 1], 2)
    tokens = torch.tensor([[1, 0, 0, 1, 0, 1], [1, 1, 0, 1, 0, 0]])
    states = dfa.follow(tokens)
    assert states.tolist() == [[1, 2, 0, 1, 2, 3], [1, 1, 2, 3, 3, 3]]
    assert torch.equal(dfa.follow(tokens[:, 2:], states[:, 1]), states[:, 2:])
    assert torch.equal(dfa.step(states[:, 1], tokens[:, 2]), states[:, 2])


def test_an_empty_motif_and_symbols_outside_the_alphabet_are_refused():
    with pytest.raises(UserError, match="at least one"):
        contains([], 2)
    with pytest.raises(UserError, match="outside the vocabulary"):
        contains([0, 2], 2)
    with pytest.raises(UserError, match="'2' at position 1"):
        spell("02", "01")
