import gzip
import lzma
import os
from pathlib import Path

import pytest
import torch

from ebar.data import TextData
from ebar.data import text as module
from ebar.data.built_tokeniser import Bpe
from ebar.data.text import blocks_of, read_tokens, texts_of, windows
from ebar.data.tokenisers import Alphabet, Bytes, Words
from ebar.errors import UserError

TEXT = "über\nzwei Zeilen\n\nund mehr"


@pytest.mark.parametrize(("suffix", "pack"), [("txt", bytes), ("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_file_is_one_stream_of_tokens(tmp_path, suffix, pack):
    path = tmp_path / f"corpus.{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    assert bytes(read_tokens(path, Bytes()).tolist()).decode() == TEXT
    letters = Alphabet.train(texts_of(path))
    assert letters.decode(read_tokens(path, letters).tolist()) == TEXT + "\n"  # every line has its line break
    words = Words.train(texts_of(path))
    assert len(read_tokens(path, words)) == 5 + 4


def test_bytes_need_not_be_text(tmp_path):
    path = tmp_path / "c.bin"
    path.write_bytes(b"\xff\x00\n\xfe")
    assert read_tokens(path, Bytes()).tolist() == [255, 0, 10, 254]
    with pytest.raises(UserError, match=r"c.bin, line 1: byte 1 is not UTF-8"):
        read_tokens(path, Alphabet("a"))


def test_windows_are_consecutive_and_the_rest_is_left_out():
    x = windows(torch.arange(11), 4)
    assert x.tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert x.lengths.tolist() == [4, 4]
    with pytest.raises(UserError, match="11 tokens, too few for one window of 12"):
        windows(torch.arange(11), 12)


def test_texts_need_not_be_files():
    assert windows(read_tokens(["ab", "ca"], Alphabet("abc")), 2).tokens.tolist() == [[0, 1], [2, 0]]
    with pytest.raises(TypeError, match=r"give \[text\]"):
        windows(read_tokens("abc", Alphabet("abc")), 2)
    with pytest.raises(UserError, match="Text 2: 'd' at position 0"):
        windows(read_tokens(["ab", "d"], Alphabet("abc")), 2)


def test_blocks_cut_anywhere_hold_the_same_tokens(tmp_path, monkeypatch):
    path = tmp_path / "c.txt"
    path.write_text("".join(f"{'  ' * (n % 3)}line {n}\n" for n in range(50)))
    for tokeniser in (Bpe.train(texts_of(path), 270), Bytes()):
        whole = read_tokens(path, tokeniser)
        monkeypatch.setattr(module, "AT_ONCE", 3)
        monkeypatch.setattr(module, "BLOCK", 7)
        assert sum(1 for _ in blocks_of(path, tokeniser)) > 10
        assert torch.equal(read_tokens(path, tokeniser), whole)
        monkeypatch.undo()


def test_what_cannot_be_read_says_so(tmp_path):
    damaged = tmp_path / "d.xz"
    damaged.write_bytes(lzma.compress(os.urandom(5000))[:-900])
    empty = tmp_path / "e.txt"
    empty.touch()
    for path, message in (
        (damaged, "cannot be decompressed past byte"),
        (empty, r"e\.txt is empty"),
        (tmp_path / "missing", "There is no file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            read_tokens(path, Bytes())
    (tmp_path / "t.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"line 2: 'b' at position 0"):
        read_tokens(tmp_path / "t.txt", Alphabet("a\n"))


@pytest.mark.skipif("EBAR_DATA" not in os.environ, reason="EBAR_DATA names no folder with WikiText-2")
def test_wikitext_2_has_the_tokens_everyone_counts():
    valid = Path(os.environ["EBAR_DATA"]) / "wikitext-2" / "valid.txt.xz"
    assert len(read_tokens(valid, Words.train(texts_of(valid)))) == 217_646


def test_a_part_of_the_windows_is_spread_over_the_text(tmp_path):
    for name in ("train", "validation"):
        (tmp_path / name).write_bytes(bytes(range(40)))
    data = TextData(
        train=tmp_path / "train", validation=tmp_path / "validation", length=4, windows=4, held_out_windows=2
    )
    corpus = data.read()
    assert corpus.train.tokens[:, 0].tolist() == [0, 12, 24, 36]
    assert corpus.validation.tokens[:, 0].tolist() == [0, 36]
