import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression, compile_text
from ebar.automata.lift import OnDemand, Reading, byte_level, lift
from ebar.automata.motif import spell
from ebar.automata.trie import Trie
from ebar.features.regular import Expression
from tests.automata.strings import all_strings, batch

TEXT = "the cat sat on the mat; the naïve café cost 12 € and the cat ate 日本 rice: ça va, 34 cats 🙂. " * 3


def test_tokens_of_several_symbols_move_as_their_spelling_does():
    dfa = compile_expression(".*0110.*", "01")
    vocabulary = ["0", "1", "01", "10", "0110", ""]
    lifted = lift(dfa, [spell(token, "01") for token in vocabulary])
    words = all_strings(len(vocabulary), 4)
    expected = ["0110" in "".join(vocabulary[token] for token in word) for word in words]
    assert lifted.accepts(batch(words)).tolist() == expected


def test_a_special_token_spells_nothing_so_that_lifting_commutes_with_complement():
    dfa = compile_expression("(01)*", "01")
    spellings = [[0, 1], [1], None, [0]]
    words = batch(all_strings(4, 4))
    assert torch.equal(lift(~dfa, spellings).accepts(words), ~lift(dfa, spellings).accepts(words))
    assert lift(dfa, spellings).table[:, 2].tolist() == list(range(dfa.states))


def test_a_character_may_be_split_between_tokens():
    lifted = lift(compile_text("é+"), [b"\xc3", b"\xa9", b"\xa9\xc3", b"a"])
    words = batch([(0, 1), (0, 2, 1), (0,), (1, 0), (0, 1, 3), (0, 2)])
    assert lifted.accepts(words).tolist() == [True, True, False, False, False, False]


@pytest.fixture(scope="module")
def tokeniser():
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    return made


def spelling(tokeniser: Any) -> list[bytes | None]:
    tokens = [tokeniser.id_to_token(number) for number in range(tokeniser.get_vocab_size())]
    return [None, *byte_level(tokens[1:])]


SOME_LETTER = compile_text(".*(a|é|日).*")
EXPRESSIONS = [r"(.*[^a-z])?cats?([^a-z].*)?", r".*\d\d.*", "~(.*é.*)", ".*[日-本].*", ".*🙂.?", "[a-z ïéç,;]*"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_about_text_is_followed_along_the_tokens_of_a_trained_bpe(tokeniser, expression):
    lifted = lift(compile_text(expression), spelling(tokeniser))
    python = re.compile(expression if "~" not in expression else "[^é]*", re.DOTALL)
    pieces = [TEXT[begin : begin + length] for begin in range(0, 95, 3) for length in (1, 4, 9, 25)]
    rows = [tokeniser.encode(piece).ids for piece in pieces]
    assert max(len(row) for row in rows) > 4
    found = lifted.accepts(batch(rows)).tolist()
    assert found == [python.fullmatch(piece) is not None for piece in pieces]
    assert True in found
    assert False in found


@settings(max_examples=60)
@given(data=st.data())
def test_any_token_string_means_the_bytes_it_spells(tokeniser, data):
    spellings = spelling(tokeniser)
    ids = data.draw(st.lists(st.integers(0, len(spellings) - 1), max_size=8))
    joined = b"".join(spellings[number] or b"" for number in ids)
    dfa = SOME_LETTER
    assert bool(lift(dfa, spellings).accepts(batch([ids]))[0]) == bool(dfa.accepts(batch([joined]))[0])


def test_a_vocabulary_of_fifty_thousand_is_lifted():
    generator = torch.Generator().manual_seed(0)
    letters = bytes(torch.randint(97, 123, (600_000,), generator=generator).tolist())
    cuts = torch.randint(1, 12, (50_000,), generator=generator).cumsum(0).tolist()
    spellings = [letters[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]
    dfa = compile_text("(.*(xyz|quick).*)&~(.*[bc]{4}.*)&.{0,16}")
    lifted = lift(dfa, spellings)
    assert lifted.table.shape == (dfa.states, 50_000)
    assert dfa.states > 150
    token = 4321
    state = dfa.follow(batch([spellings[token]]).tokens)[0, -1]
    assert lifted.table[dfa.start, token] == state


@st.composite
def automata_and_spellings(draw: Any) -> tuple[Dfa, list[list[int] | None]]:
    """Any automaton over three symbols, with and without hopeless states, and any vocabulary, repetitions included."""
    states = draw(st.integers(1, 5))
    rows = draw(
        st.lists(st.lists(st.integers(0, states - 1), min_size=3, max_size=3), min_size=states, max_size=states)
    )
    stuck = draw(st.integers(0, states))  # one that nothing leaves, where there is a state of this number
    table = [[state] * 3 if state == stuck else row for state, row in enumerate(rows)]
    accepting = draw(st.lists(st.booleans(), min_size=states, max_size=states))
    spelling = st.none() | st.lists(st.integers(0, 2), max_size=4)
    start = draw(st.integers(0, states - 1))
    return Dfa(torch.tensor(table), torch.tensor(accepting), start=start), draw(
        st.lists(spelling, min_size=1, max_size=9)
    )


@settings(max_examples=60)
@given(automata_and_spellings())
def test_every_state_and_token_lead_where_the_spelling_does_symbol_by_symbol(case):
    dfa, spellings = case
    wanted = []
    for state in range(dfa.states):
        row = []
        for spelling in spellings:
            at = state
            for symbol in spelling or ():
                at = int(dfa.table[at, symbol])
            row.append(at)
        wanted.append(row)
    lifted = lift(dfa, spellings)
    assert lifted.table.tolist() == wanted
    assert lifted.start == dfa.start
    assert lifted.moves.dtype == torch.int32
    # Letters are in the order of their first tokens, and no two tokens that act alike have two.
    assert lifted.letter is not None
    assert list(dict.fromkeys(lifted.letter.tolist())) == list(range(lifted.moves.shape[1]))
    assert lifted.moves.shape[1] == len({tuple(column) for column in zip(*wanted, strict=True)})
    rows = OnDemand(dfa, Trie.of(spellings))
    assert [rows.row(state).tolist() for state in range(dfa.states)] == wanted


def test_a_mask_holds_what_spells_something_that_can_still_be_accepted():
    rows = OnDemand(compile_text("ab?|ca"), Trie.of([b"a", b"b", b"c", b"ab", b"bb", b"", None, b"a"]))
    assert rows.allowed(rows.start).tolist() == [True, False, True, True, False, True, False, True]
    after = int(rows.row(rows.start)[0])
    assert rows.allowed(after).tolist() == [False, True, False, False, False, True, False, False]
    assert rows.accepting[after]


def test_letters_are_shared_through_complement_intersection_and_union():
    spellings = [b"a", b"b", b"ab", b"x", b"y", b"xy", None]
    one, two = lift(compile_text("(ab|x)*"), spellings), lift(compile_text(".{0,3}"), spellings)
    words = batch(all_strings(len(spellings), 3))
    assert torch.equal((one & two).accepts(words), one.accepts(words) & two.accepts(words))
    assert torch.equal((one | ~two).accepts(words), one.accepts(words) | ~two.accepts(words))
    assert (one & two).letter is not None
    plain = Dfa(one.table.long(), one.accepting, start=one.start)
    assert torch.equal(plain.minimised().table, one.minimised().table)
    assert [plain.count(length) for length in range(4)] == [one.count(length) for length in range(4)]


def test_what_is_kept_is_read_by_the_next_process_and_not_where_anything_differs(tmp_path, monkeypatch):
    monkeypatch.setenv("EBAR_CACHE", str(tmp_path))
    made: list[str] = []

    class Noted(Expression):
        def language(self, alphabet: str | None) -> Dfa:
            made.append(self.expression)
            return super().language(alphabet)

    def automaton(expression: str, spellings: list[bytes | None], before: str = "") -> Dfa:
        return Noted(expression).bind(Reading(end=3, spellings=spellings, before=before)).automaton

    first = automaton("ab", [b"a", b"b", b"ab", None])
    again = automaton("ab", [b"a", b"b", b"ab", None])
    assert made == ["ab"]
    assert torch.equal(first.table, again.table)
    assert torch.equal(first.accepting, again.accepting)
    assert first.start == again.start
    automaton("ab", [b"a", b"b", b"abb", None])
    automaton("ab", [b"a", b"b", b"ab", None], "a")
    automaton("a", [b"a", b"b", b"ab", None])
    assert made == ["ab", "ab", "ab", "a"]
    assert not list(tmp_path.rglob("*.pkl"))
