import gzip
import lzma
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.data.corpus import longest_of, numbered_lines, read_corpus, symbols_of, validation_size
from ebar.data.tokenisers import Alphabet, Bytes, Tokeniser
from ebar.errors import UserError
from ebar.types import Space

BITS = Alphabet("01")
SPACE = Space(3, 5, 2)


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("suffix", "pack"), [("txt", bytes), ("gz", gzip.compress), ("xz", lzma.compress)])
def test_one_sequence_per_line_with_its_end(tmp_path, suffix, pack):
    path = write(tmp_path / f"corpus.{suffix}", pack(b"0110\n\n1\r\n10"))
    x = read_corpus(path, BITS, SPACE)
    assert Space(3, 5, 2) == SPACE
    assert [x.prefix(row) for row in range(4)] == [[0, 1, 1, 0, 2], [2], [1, 2], [1, 0, 2]]
    assert x.lengths.tolist() == [5, 1, 2, 3]
    assert symbols_of(path) == "01"
    assert longest_of(path, BITS) == 4


def test_without_an_end_every_line_has_the_same_length(tmp_path):
    path = write(tmp_path / "c.txt", "né\nno!\n".encode())
    fixed = Space(256, 3)
    assert read_corpus(path, Bytes(), fixed).tokens.tolist() == [[110, 195, 169], [110, 111, 33]]
    with pytest.raises(UserError, match=r"c.txt, line 1: 3 tokens where each line must have 4: make them"):
        read_corpus(path, Bytes(), Space(256, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"01\n0\xff1\n", r"c.txt, line 2: byte 2 is not UTF-8"),
        (b"01\n011\n0120\n", r"c.txt, line 3: '2' at position 2 is not in the alphabet '01'"),
        (b"01\n01010\n", r"c.txt, line 2: 6 tokens are more than the 5 allowed, the end included\."),
        (b"", r"c.txt is empty: it needs one sequence per line\."),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_corpus(write(tmp_path / "c.txt", content), BITS, SPACE)


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_compressed_file_that_is_damaged_or_cut_short_says_so(tmp_path, suffix, pack):
    whole = pack(os.urandom(2000).hex().encode())
    for content in (whole[:-900], b"this is not compressed", whole[:500] + b"\0" * 50 + whole[550:]):
        with pytest.raises(UserError, match=rf"c\.{suffix} cannot be decompressed past line 0"):
            symbols_of(write(tmp_path / f"c.{suffix}", content))


def test_a_file_that_is_not_there_or_is_a_folder_says_so(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*missing\.txt: check its name"):
        symbols_of(tmp_path / "missing.txt")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\)"):
        symbols_of(tmp_path)


def test_a_file_of_empty_lines_has_no_alphabet(tmp_path):
    with pytest.raises(UserError, match="only empty lines"):
        symbols_of(write(tmp_path / "c.txt", b"\n\n"))


def test_a_space_that_does_not_hold_the_tokens_is_refused(tmp_path):
    with pytest.raises(ValueError, match="do not fit"):
        read_corpus(write(tmp_path / "c.txt", b"0\n"), BITS, Space(3, 5, 0))


@settings(max_examples=50)
@given(st.text())
def test_bytes_there_and_back(text):
    text = text.encode(errors="replace").decode()
    assert Bytes().decode(Bytes().encode(text)) == text


def test_an_alphabet_there_and_back():
    letters = Alphabet("cab")
    assert letters.encode("abc") == [1, 2, 0]
    assert letters.decode([1, 2, 0]) == "abc"
    assert all(isinstance(tokeniser, Tokeniser) for tokeniser in (letters, Bytes()))


def test_bytes_that_are_no_text_decode_to_the_replacement_character():
    assert Bytes().decode([0xC3, 0x28]) == "\ufffd("


@pytest.mark.parametrize("symbols", ["", "aa"])
def test_an_alphabet_is_of_different_characters(symbols):
    with pytest.raises(UserError, match="one or more different characters"):
        Alphabet(symbols)


def test_a_token_that_spells_nothing_is_an_error():
    with pytest.raises(UserError, match="Token 2 at position 1 spells nothing"):
        BITS.decode([0, 2])


def test_validation_sizes_of_parshakova_et_al_2019():
    # |V| = min(max(b, ¼|D|), 2000), b = min(|D|, 500)
    assert {d: validation_size(d) for d in (100, 500, 1000, 5000, 8000, 20000)} == {
        100: 100, 500: 500, 1000: 500, 5000: 1250, 8000: 2000, 20000: 2000,
    }  # fmt: skip


def test_line_ends_and_the_mark_of_windows_are_no_symbols(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfab\r\nb\r\n")
    assert list(numbered_lines(path)) == [(1, "ab"), (2, "b")]
    assert symbols_of(path) == "ab"
