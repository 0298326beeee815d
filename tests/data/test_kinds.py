"""Kinds of data and tokenisers by name, and corpora made in Python."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import ebar.data as data
from ebar.data import DATA, TOKENISERS
from ebar.data.built_tokeniser import read_tokeniser
from ebar.errors import UserError
from ebar.features import Word, bind
from ebar.types import Sequences

TEXT = "a rabbit ran\nshe saw a bunny\n" * 40


@dataclass(frozen=True)
class Halves:
    """One token per letter, upper case or not."""

    size = 26

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Halves":
        return Halves()

    @staticmethod
    def read(fields: dict[str, Any]) -> "Halves":
        return Halves()

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text.lower() if letter.isalpha()]

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(token + ord("a")) for token in tokens)

    def to_json(self) -> str:
        return '{"kind": "letters"}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def test_a_tokeniser_of_ones_own_works_by_name(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="There is no tokeniser called 'letters': choose one of bpe, bytes"):
        data.read_text(path, tokeniser="letters")
    monkeypatch.setitem(TOKENISERS, "letters", Halves)
    corpus = data.read_text(path, tokeniser="letters", length=8)
    assert corpus.text(corpus.train.select(torch.tensor([0]))) == ["arabbitr"]
    (tmp_path / "tokeniser.json").write_text(corpus.files["tokeniser.json"])
    assert data.TextData(train=path, length=8).read(folder=tmp_path).tokeniser == Halves()
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n" * 40)
    assert data.read_parallel(pairs, tokeniser="letters").source_tokeniser == Halves()


@pytest.mark.parametrize("name", ["bytes", "characters", "words", "bpe", "unigram"])
def test_every_tokeniser_of_the_table_is_trained_and_read_again(name: str) -> None:
    made = TOKENISERS[name].train(TEXT.splitlines(), None)
    again = read_tokeniser(made.to_json())
    assert again == made
    assert again.decode(again.encode("she ran")) == "she ran"


def test_a_pretrained_tokeniser_is_not_trained(path: Path) -> None:
    with pytest.raises(UserError, match=r"give the tokeniser\.json of a run"):
        data.read_text(path, tokeniser="pretrained")


@pytest.mark.parametrize("kind", DATA)
def test_an_entry_has_its_name_and_reads(kind: str) -> None:
    assert DATA[kind].kind == kind
    assert callable(DATA[kind].read)
    assert DATA.help(kind).endswith((".", ")."))


def test_a_corpus_says_of_what_kind_it_is_and_what_its_options_were(path: Path) -> None:
    corpus = data.read_text(path, tokeniser="characters", length=16)
    origin = corpus.origin
    assert origin is not None
    assert (origin.pop("kind"), origin["length"], origin["train"]) == ("text", 16, path)
    again = DATA.make("text", origin).read()
    assert torch.equal(again.train.tokens, corpus.train.tokens)
    drawn = data.language(motif="11", length=5, size=20, seed=3)
    assert drawn.origin is not None
    assert drawn.origin["motif"] == "11"
    assert data.language(motif="11", length=5, size=20, seed=4).train.tokens.tolist() != drawn.train.tokens.tolist()


@pytest.mark.parametrize("name", ["bytes", "characters", "bpe"])
def test_a_feature_is_bound_to_the_text_of_a_corpus(path: Path, name: str) -> None:
    corpus = data.read_text(path, tokeniser=name, length=8, vocabulary=262 if name == "bpe" else None)
    feature = bind(Word("rabbit|bunny"), corpus.reading)
    x = corpus.train
    texts = corpus.text(x)
    has = [any(word in text.split() for word in ("rabbit", "bunny")) for text in texts]
    assert feature(x).tolist() == [float(one) for one in has]
    assert 0 < sum(has) < len(has)


def test_words_have_no_exact_spelling(path: Path) -> None:
    corpus = data.read_text(path, tokeniser="words", length=3)
    with pytest.raises(UserError, match="no exact spelling"):
        bind(Word("rabbit"), corpus.reading)


def test_held_out_rows_are_many_where_a_token_has_few_logits(path: Path) -> None:
    assert data.read_lines(path).held_out_batch == data.language(length=4, size=8).held_out_batch == 1024
    assert data.read_text(path, length=16).held_out_batch == 1
    assert isinstance(data.read_lines(str(path), validation=str(path)).validation, Sequences)
