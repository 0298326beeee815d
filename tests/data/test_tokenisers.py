import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.data.built_tokeniser import Bpe, read_tokeniser
from ebar.data.tokenisers import Alphabet, Bytes, Storable, Tokeniser, Words, encode_many
from ebar.errors import UserError

TEXTS = ["low lower lowest\n", "Größe: 3½ Ġĉ <unk> 🙂\n", "  two  blanks\t\r\n\n", "<|endoftext|> \u2028 \x00"]
BPE = Bpe.train(TEXTS * 3, 300)
# Every character there is, but surrogates, which no UTF-8 has.
NASTY = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(TEXTS)


@settings(max_examples=300)
@given(NASTY)
def test_every_text_comes_back_from_bytes_and_from_byte_pairs(text):
    for tokeniser in (Bytes(), BPE):
        tokens = tokeniser.encode(text)
        assert all(0 <= token < tokeniser.size for token in tokens)
        assert tokeniser.decode(tokens) == text


@settings(max_examples=100)
@given(st.lists(NASTY, min_size=1))
def test_an_alphabet_of_texts_spells_them_and_words_come_back_with_single_blanks(texts):
    if any(texts):
        letters = Alphabet.train(texts)
        assert [letters.decode(letters.encode(text)) for text in texts] == texts
    if any(text.split(" ") != [""] * len(text.split(" ")) and (text.split() or "\n" in text) for text in texts):
        try:
            words = Words.train(texts)
        except UserError:
            return  # nothing but <unk>
        for text in texts:
            spaced = "\n".join(" ".join(line.split()) for line in text.split("\n"))
            assert words.decode(words.encode(text)) == spaced


@settings(max_examples=50)
@given(st.lists(NASTY))
def test_many_texts_at_once_have_the_same_tokens(texts):
    for tokeniser in (Bytes(), BPE):
        assert encode_many(tokeniser, texts) == [tokeniser.encode(text) for text in texts]


def test_characters_by_hand():
    assert Alphabet.train(["bab", "ca"]).symbols == "abc"
    # Of a twice, b twice, c once: two and the unknown one.
    rare = Alphabet.train(["bab", "ca"], 3)
    assert (rare.symbols, rare.size) == ("ab", 3)
    assert rare.encode("cab?") == [2, 0, 1, 2]
    assert rare.decode([2, 0]) == "\ufffda"
    with pytest.raises(UserError, match=r"'\?' at position 1 is not in the alphabet"):
        Alphabet.train(["a"]).encode("a?")
    with pytest.raises(ValueError, match="2 tokens or more, not 1"):
        Alphabet.train(["a"], 1)
    with pytest.raises(UserError, match="no character"):
        Alphabet.train([""])


def test_words_by_hand():
    words = Words.train(["b a b\n", "c a b"], 4)  # b 3 times, a 2, then \n and c once each: \n comes first
    assert words.words == ("b", "a", "\n")
    assert words.size == 4
    assert words.encode("a  c\nb <unk>") == [2, 0, 3, 1, 0]
    assert words.decode([2, 0, 3, 1, 0]) == "a <unk>\nb <unk>"
    assert Words.train(["b a b\n", "c a b"]).size == 5
    with pytest.raises(UserError, match="Token 4 at position 0 spells nothing"):
        words.decode([4])
    with pytest.raises(UserError, match="no word"):
        Words.train(["  ", "<unk>"])
    with pytest.raises(UserError, match="different words"):
        Words(("a", "a"))
    with pytest.raises(ValueError, match="2 tokens or more"):
        Words.train(["a"], 1)


def test_byte_pairs_by_hand():
    # "ab" is the only pair there is: one merge, and no more can be made.
    pair = Bpe.train(["ab ab ab"], 1000)
    assert len(pair.encode("ab")) == 1
    assert len(pair.encode("ba")) == 2
    assert pair.size == 258  # 256 bytes, ab, and ab after a blank
    assert pair == Bpe.train(["ab ab ab"], 1000)
    with pytest.raises(ValueError, match="256 bytes"):
        Bpe.train(["ab"], 255)
    with pytest.raises(UserError, match="Token 258 at position 1"):
        pair.decode([0, 258])


def test_byte_pairs_are_the_same_every_time_whatever_the_order():
    texts = [f"{a}{b} {b}{a}" for a in "abcdefgh" for b in "abcdefgh"]
    assert Bpe.train(texts, 320) == Bpe.train(reversed(texts), 320)


@pytest.mark.parametrize("tokeniser", [Alphabet("ab\n"), Alphabet("ä", unknown=True), Bytes(), Words(("a", "\n")), BPE])
def test_a_tokeniser_is_read_back_from_its_text(tokeniser):
    assert isinstance(tokeniser, Tokeniser)
    assert isinstance(tokeniser, Storable)
    text = tokeniser.to_json()
    again = read_tokeniser(text)
    assert again == tokeniser
    assert isinstance(again, Storable)
    assert again.to_json() == text
    assert again.size == tokeniser.size
    json.loads(text)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "bytes2"}', '{"kind": "words"}', '{"kind": "bpe", "model": {}}'])
def test_what_is_no_tokeniser_says_so(text):
    with pytest.raises(UserError, match="tokeniser"):
        read_tokeniser(text)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"ebar\[hf\]"):
        Bpe.train(["ab"], 300)
