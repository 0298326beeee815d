"""A tokenizer of transformers that gives the same tokens as ebar's, after the beginning."""

from pathlib import Path
from typing import Any

import pytest

from ebar.data.built_tokeniser import Bpe, Unigram
from ebar.data.tokenisers import Alphabet, Bytes, Tokeniser, Words
from ebar.types import Space

transformers = pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
from ebar.data.as_hugging_face import hugging_face_tokenizer  # noqa: E402

TEXT = "Hello, wörld!\nSecond line  here.\n\n e\u0301 x 😀 \tz"
MADE: dict[str, Tokeniser] = {
    "bytes": Bytes(),
    "characters": Alphabet.train([TEXT]),
    "frequent characters": Alphabet.train([TEXT], 9),
    "words": Words.train([TEXT]),
    "frequent words": Words.train([TEXT], 4),
    "bpe": Bpe.train([TEXT] * 3, 300),
    "unigram": Unigram.train([TEXT] * 9, 400),
}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_text_has_the_same_tokens_and_comes_back(name: str, ends: bool, tmp_path: Path) -> None:
    tokeniser = MADE[name]
    space = Space(tokeniser.size + ends, 99, tokeniser.size if ends else None)
    made = hugging_face_tokenizer(tokeniser, space, longest=100)
    assert made is not None
    made.save_pretrained(tmp_path)
    read: Any = transformers.AutoTokenizer.from_pretrained(tmp_path)
    beginning, *tokens = read(TEXT)["input_ids"]
    assert tokens == tokeniser.encode(TEXT)
    assert beginning == read.bos_token_id == space.vocabulary
    assert read.eos_token_id == space.end
    if "words" not in name:  # whose line breaks have blanks round them
        assert read.decode([beginning, *tokens], skip_special_tokens=True) == tokeniser.decode(tokens)


def test_a_tokeniser_of_ones_own_has_no_twin() -> None:
    class Own:
        size = 2

        def encode(self, text: str) -> list[int]:
            return []

        def decode(self, tokens: list[int]) -> str:
            return ""

    assert hugging_face_tokenizer(Own(), Space(2, 4)) is None
    # One number is taken by something else: nothing is written rather than something wrong.
    assert hugging_face_tokenizer(Bytes(), Space(300, 4)) is None
