"""Texts with gaps, in the tokens of every kind of tokeniser."""

import pytest

from ebar.data.built_tokeniser import Bpe, Unigram
from ebar.data.gapped import Gapped
from ebar.data.tokenisers import Alphabet, Bytes, Tokeniser, Words
from ebar.errors import UserError

TEXTS = ["the newest towns were lower than the new town , it 's well-known"] * 20
BPE, UNIGRAM = Bpe.train(TEXTS, 300), Unigram.train(TEXTS, 300)


def gapped(text: str, tokeniser: Tokeniser) -> Gapped:
    return Gapped(text, tokeniser, tokeniser.size + 4)


@pytest.mark.parametrize("tokeniser", [BPE, UNIGRAM, Alphabet("abcdefghijklmnopqrstuvwxyz ,'-"), Bytes()])
@pytest.mark.parametrize("text", ["the ___ town", "the ___:2 were", "___ town", "the be___ town , ___", "the ___, it"])
def test_the_words_own_tokens_fill_a_gap_to_the_tokens_of_the_whole(tokeniser, text):
    """What stands in the text and the pieces of `low` or `new` make the tokens of the finished text."""
    cut = gapped(text, tokeniser)
    cut.check()
    words = ["low" if fragment.endswith("e") else "new" for fragment in cut.fragments[:-1]]
    whole = tokeniser.encode(cut.filled(words))
    parts, rest, found = cut.tokens(), whole, []
    for gap, fragment in enumerate(parts[:-1]):
        assert rest[: len(fragment)] == fragment
        rest = rest[len(fragment) :]
        following = parts[gap + 1]
        number = next(n for n in range(1, 9) if rest[n : n + len(following)] == following and cut.word(gap, rest[:n]))
        if cut.word(gap, rest[:number]) != words[gap]:  # "new" of "newest"
            pytest.skip("the tokeniser reads on")
        allowed = cut.pieces(gap, number)
        assert all(bool(allowed[place, token]) for place, token in enumerate(rest[:number]))
        found.append(rest[:number])
        rest = rest[number:]
    assert len(found) == len(cut.fixed)


def test_a_gap_says_how_many_pieces_it_has():
    cut = gapped("a ___ b ___:3 c", Bytes())
    assert cut.fixed == [None, 3]
    assert cut.fragments == ["a ", " b ", " c"]
    assert cut.filled(["x", "yyy"]) == "a x b yyy c"


@pytest.mark.parametrize("tokeniser", [BPE, UNIGRAM])
def test_the_first_piece_starts_a_word_and_the_others_do_not(tokeniser):
    cut = gapped("the ___ town", tokeniser)
    starts, within = cut.pieces(0, 2)
    spelt = tokeniser.spellings()
    assert starts.any()
    assert within.any()
    assert all(spelt[token][:1] == b" " for token in starts.nonzero()[:, 0].tolist())
    assert all(spelt[token][:1] != b" " for token in within.nonzero()[:, 0].tolist())
    assert not starts[tokeniser.size :].any()  # special tokens
    assert not within[tokeniser.size :].any()
    assert not within[tokeniser.encode(",")].any()
    assert cut.tokens()[0] == tokeniser.encode("the")
    inside = gapped("the new___ town", tokeniser)
    assert (inside.pieces(0, 1)[0] == within).all()


def test_only_the_tokenisers_own_pieces_are_a_word():
    cut = gapped("the ___ town", BPE)
    own = BPE.encode(" new")
    assert cut.word(0, own) == "new"
    letters = [BPE.encode(" ")[0], *(BPE.encode(letter)[0] for letter in "new")]
    assert letters != own
    assert cut.word(0, letters) is None
    assert cut.word(0, BPE.encode(" ")) is None
    assert cut.word(0, BPE.encode(" 's")) == "'s"
    assert cut.word(0, BPE.encode(" -")) is None


def test_words_are_one_piece_each():
    words = Words.train(TEXTS)
    cut = gapped("the ___ town", words)
    cut.check()
    number = words.encode("new")
    assert bool(cut.pieces(0, 1)[0, number])
    assert cut.word(0, number) == "new"
    with pytest.raises(UserError, match="whole words"):
        gapped("the ___:2 town", words).check()


@pytest.mark.parametrize(
    ("text", "tokeniser", "words"),
    [
        ("no gap here", Bytes(), "There is no gap in 'no gap here'"),
        ("a ___:0 b", Bytes(), "at least one piece"),
        ("a ___ q", Alphabet("ab "), "'q' at position 1 is not in the alphabet"),
        ("a ___ q", Alphabet("ab ", unknown=True), "no token for"),
    ],
)
def test_mistakes_are_one_sentence_each(text, tokeniser, words):
    with pytest.raises(UserError, match=words):
        gapped(text, tokeniser).check()


def test_what_is_no_word_fills_no_gap_of_whole_words():
    words = Words(("\n", "red", "the"))
    gapped = Gapped("the ___ .", words, words.size)
    assert [gapped.word(0, [piece]) for piece in range(words.size)] == [None, None, "red", "the"]
