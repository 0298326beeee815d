"""Tokenizers of Hugging Face, trained here on a few words: byte-level, with bytes to fall back on, and WordPiece."""

import json
from typing import Any

import pytest
import torch

from ebar.automata.expressions import compile_text
from ebar.automata.lift import lift
from ebar.data.built_tokeniser import Bpe, PretrainedTokeniser, read_tokeniser
from ebar.data.tokenisers import EncodesMany, Storable, Tokeniser
from ebar.errors import UserError
from ebar.types import Sequences

tokenizers = pytest.importorskip("tokenizers")

TEXTS = ["the cat sat on the mat", "a cat and a hat", "Zoë's naïve café 😀"]
WORDS = ["▁", "c", "a", "t", "▁c", "at", "▁cat", *(f"<0x{byte:02X}>" for byte in range(256))]


def special(number: int, name: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": name, **flags}


def byte_level() -> PretrainedTokeniser:
    model = json.loads(Bpe.train(TEXTS, 280).model)
    size = len(model["model"]["vocab"])
    model["added_tokens"] = [special(size, "<|end|>")]
    return PretrainedTokeniser(json.dumps(model), beginning=size, end=size)


def falling_back() -> PretrainedTokeniser:
    """As sentencepiece writes them: ▁ for a blank, one before the text, <0x41> for a byte."""
    model = tokenizers.models.BPE(
        vocab={piece: number for number, piece in enumerate(["<unk>", *WORDS])},
        merges=[("▁", "c"), ("a", "t"), ("▁c", "at")], byte_fallback=True, fuse_unk=True, unk_token="<unk>",
    )  # fmt: skip
    made = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PretrainedTokeniser(made.to_str(), beginning=made.token_to_id("<s>"), end=made.token_to_id("</s>"))


def word_piece() -> PretrainedTokeniser:
    model = tokenizers.models.WordPiece(vocab={"[UNK]": 0, "the": 1, "cat": 2, "##s": 3}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    return PretrainedTokeniser(made.to_str())


@pytest.mark.parametrize("make", [byte_level, falling_back])
def test_text_comes_back_and_special_tokens_spell_nothing(make):
    tokeniser = make()
    assert all(isinstance(tokeniser, protocol) for protocol in (Tokeniser, EncodesMany, Storable))
    for text in [*TEXTS, "", "Ünïcödé \x00 \n\t", "a cat"]:
        tokens = tokeniser.encode(text)
        assert tokeniser.decode(tokens) == text
        tokeniser.check_round_trip(text)
        assert tokeniser.decode([tokeniser.beginning, *tokens, tokeniser.end]) == text
    assert tokeniser.encode_many(TEXTS) == [tokeniser.encode(text) for text in TEXTS]
    with pytest.raises(UserError, match=f"Token {tokeniser.size} at position 1 spells nothing"):
        tokeniser.decode([0, tokeniser.size])


@pytest.mark.parametrize(("make", "written"), [(byte_level, "<|end|>"), (falling_back, "</s>")])
def test_text_that_is_spelt_like_a_special_token_is_text(make, written):
    tokeniser = make()
    tokens = tokeniser.encode(f"cat{written}cat")
    assert tokeniser.end not in tokens
    assert tokeniser.decode(tokens) == f"cat{written}cat"


def test_spellings_by_hand():
    spelt = falling_back().spellings()
    assert spelt[:8] == [None, b" ", b"c", b"a", b"t", b" c", b"at", b" cat"]
    assert spelt[8 + 0x41] == b"A"
    assert spelt[-2:] == [None, None]
    assert byte_level().spellings()[-1] is None


@pytest.mark.parametrize(("make", "blank"), [(byte_level, b""), (falling_back, b" ")])
def test_the_bytes_of_tokens_are_the_bytes_of_the_text(make, blank):
    tokeniser = make()
    spelt = tokeniser.spellings()
    assert len(spelt) == tokeniser.size
    for text in TEXTS:
        assert b"".join(spelt[token] or b"" for token in tokeniser.encode(text)) == blank + text.encode()


def test_an_automaton_follows_the_text_through_the_tokens():
    tokeniser = byte_level()
    dfa = lift(compile_text("caf.", anywhere=True), tokeniser.spellings())
    rows = [torch.tensor([tokeniser.encode(text)]) for text in TEXTS]
    accepted = [bool(dfa.accepts(Sequences(row, torch.tensor([row.shape[1]])))) for row in rows]
    assert accepted == [False, False, True]


def test_what_tokens_add_to_those_before_them_keeps_its_blank():
    tokeniser = falling_back()
    before, tokens = tokeniser.encode("the cat")[:-1], tokeniser.encode("the cat")[-1:]
    assert tokeniser.decode(tokens) == "cat"
    assert tokeniser.decode_after(before, tokens) == " cat"
    smile = tokeniser.encode("t😀t")  # four bytes, cut in two
    assert tokeniser.decode_after(smile[:4], smile[4:]) == "😀t"


def test_a_tokenizer_that_loses_capitals_is_refused_with_the_place():
    with pytest.raises(UserError, match="'Cats' at character 4 comes back as 'cats', so use a model whose"):
        word_piece().check_round_trip("the Cats")
    with pytest.raises(UserError, match="WordPiece tokenizer have no exact spelling"):
        word_piece().spellings()


def test_what_is_kept_of_a_tokeniser_is_enough_to_make_it_again():
    tokeniser = byte_level()
    again = read_tokeniser(tokeniser.to_json())
    assert isinstance(again, PretrainedTokeniser)
    assert again.encode(TEXTS[2]) == tokeniser.encode(TEXTS[2])
    assert (again.size, again.beginning, again.end) == (tokeniser.size, tokeniser.beginning, tokeniser.end)
    with pytest.raises(UserError, match="no tokeniser that `tokenizers` can read"):
        PretrainedTokeniser("{}")


def test_whether_texts_begin_with_the_beginning_is_the_tokenizers_own_habit():
    assert not byte_level().begins
    described = json.loads(falling_back().model)
    begun = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    described["post_processor"] = {
        "type": "TemplateProcessing", "single": [begun, text], "pair": [begun, text],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [falling_back().beginning], "tokens": ["<s>"]}},
    }  # fmt: skip
    assert PretrainedTokeniser(json.dumps(described), beginning=falling_back().beginning).begins
    assert not PretrainedTokeniser(json.dumps(described)).begins


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(UserError, match="object is a slow tokenizer"):
        PretrainedTokeniser.of(object())
