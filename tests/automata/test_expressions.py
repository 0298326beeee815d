import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ebar.automata.expressions import compile_expression, compile_text
from ebar.automata.motif import contains, spell
from ebar.errors import UserError
from tests.automata.strings import all_strings, batch

WORDS = all_strings(3, 5)
TEXTS = ["".join("abc"[token] for token in word) for word in WORDS]
BATCH = batch(WORDS)


def matches(expression: str, *, anywhere: bool = False) -> set[str]:
    accepted = compile_expression(expression, "abc", anywhere=anywhere).accepts(BATCH).tolist()
    return {text for text, flag in zip(TEXTS, accepted, strict=True) if flag}


atoms = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", "()", r"\x61"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{,3}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(expression=expressions)
@example(expression="((a)*|b)?(ab){1,}")
def test_the_common_syntax_agrees_with_python(expression):
    python = re.compile(expression)
    assert matches(expression) == {text for text in TEXTS if python.fullmatch(text)}
    assert matches(expression, anywhere=True) == {text for text in TEXTS if python.search(text)}


@settings(max_examples=60)
@given(left=expressions, right=expressions)
def test_complement_and_intersection_are_those_of_sets(left, right):
    assert matches(f"~({left})") == set(TEXTS) - matches(left)
    assert matches(f"({left})&({right})") == matches(left) & matches(right)
    assert matches(f"({left})&~({right})|{right}") == matches(left) | matches(right)


@settings(max_examples=50)
@given(left=expressions, right=expressions)
def test_expressions_of_one_language_give_one_automaton(left, right):
    one = compile_expression(f"({left})|({right})", "abc")
    two = compile_expression(f"~(~({right})&~({left}))", "abc")
    assert torch.equal(one.table, two.table)


def test_precedence_is_as_documented():
    assert matches("~a*") == matches("~(a*)")
    assert matches("~ab") == matches("(~a)b")
    assert matches("a|b&c") == {"a"}
    assert matches("ab|c") == {"ab", "c"}


def test_a_motif_is_the_same_automaton_however_it_is_written():
    motif = contains(spell("10001011111000", "01"), 2).minimised()
    for expression, anywhere in ((".*10001011111000.*", False), ("1000101{5}0{3}", True)):
        dfa = compile_expression(expression, "01", anywhere=anywhere)
        assert torch.equal(dfa.table, motif.table)
        assert torch.equal(dfa.accepting, motif.accepting)


def test_tokens_are_places_in_the_alphabet_whatever_its_order():
    dfa = compile_expression("x[ab]", "bxa")
    words = all_strings(3, 2)
    accepted = [word for word, flag in zip(words, dfa.accepts(batch(words)).tolist(), strict=True) if flag]
    assert accepted == [(1, 0), (1, 2)]


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("a(b", "position 1 .*never closed"),
        ("ab)", "position 2 .*no group to close"),
        ("*a", "position 0 .*nothing to repeat"),
        ("a|+", "position 2 .*nothing to repeat"),
        ("a**", "position 2 .*cannot be repeated"),
        ("a{2", "position 1 .*bounded repetition"),
        ("a{}", "position 1 .*bounded repetition"),
        ("a{3,2}", "position 1 .*wrong order"),
        ("a{1,2,3}", "position 1 .*bounded repetition"),
        ("a{99999999999}", "position 1 .*bounded repetition"),
        ("[ab", "position 0 .*never closed"),
        ("[]", "position 0 .*empty"),
        ("[c-a]", "position 1 .*backwards"),
        ("[a-\\d]", "position 1 .*single character"),
        ("abd", "position 2 .*no 'd'"),
        ("ab]", "position 2 .*nothing is open"),
        ("^ab", "position 0 .*no anchor"),
        ("a\\", "position 1 .*ends the expression"),
        ("a\\q", "position 1 .*no escape"),
        ("\\xg1", "position 0 .*two hexadecimal"),
        ("a~", "at its end: '~' has nothing"),
        ("(" * 60, "position 50 .*nested"),
    ],
)
def test_a_bad_expression_is_refused_with_its_position(expression, position):
    with pytest.raises(UserError, match=position):
        compile_expression(expression, "abc")


@pytest.mark.parametrize(
    "expression",
    [
        "a{1,100000}",
        "((a{0,100}b{0,100}){0,100}){0,100}",
        "((((a{3,70}){2,60}){2,50}|b){1,40}){1,30}",
        "(a|b)*a(a|b){30}",
        "a?" * 3000,
        "a" * 30_000,
    ],
)
def test_an_expression_that_would_blow_up_is_refused_before_it_does(expression):
    with pytest.raises(UserError, match="repeat less"):
        compile_expression(expression, "abc")


@settings(max_examples=300)
@given(expression=st.text("ab01(){}[]|&~*+?.,^-\\xd", max_size=25))
def test_any_text_is_an_automaton_or_a_user_error(expression):
    try:
        dfa = compile_expression(expression, "ab01-,")
    except UserError:
        return
    assert dfa.vocabulary == 6


def test_text_is_matched_as_utf8_and_nothing_else_is():
    dfa = compile_text("(é|[α-ω]+|日本|🙂).*&~(.*foo.*)")

    def accepts(data: bytes) -> bool:
        return bool(dfa.accepts(batch([data]))[0])

    assert all(accepts(text.encode()) for text in ("é", "λογος", "日本語", "🙂 fo o", "é\n"))
    assert not any(accepts(text.encode()) for text in ("e", "", "日語", "é food foo", "🙁"))
    assert not accepts("é".encode("latin-1"))  # not UTF-8
    anything = compile_text(".*")
    for bad in (
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe0\x80\x80",
        b"\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc3",
    ):
        assert not anything.accepts(batch([bad]))[0]
    assert not compile_text("~(a)").accepts(batch([b"\xff"]))[0]


@settings(max_examples=80)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
def test_every_text_is_its_own_expression(text):
    literal = "".join(f"\\{c}" if c in ".|&*+?{}[]()~^$\\" else c for c in text)
    dfa = compile_text(literal)
    assert dfa.accepts(batch([text.encode()]))[0]
    assert not dfa.accepts(batch([text.encode() + b"a"]))[0]
