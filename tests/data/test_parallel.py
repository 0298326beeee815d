import gzip
import lzma
import os
from pathlib import Path

import pytest

from ebar.data.parallel import pairs, read_pairs
from ebar.data.tokenisers import Alphabet, Bytes
from ebar.errors import UserError

GERMAN, ENGLISH = Alphabet("äb "), Alphabet("xyz")


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("suffix", "pack"), [("tsv", bytes), ("gz", gzip.compress), ("xz", lzma.compress)])
def test_targets_and_sources_by_hand(tmp_path, suffix, pack):
    table = write(tmp_path / f"p.{suffix}", pack("xy\täb ä\n\tb\nz\t\r\n".encode()))
    x, context = read_pairs(table, GERMAN, ENGLISH, source_column=1, target_column=0)
    assert [x.prefix(row) for row in range(3)] == [[0, 1, 3], [3], [2, 3]]
    assert [context.given.prefix(row) for row in range(3)] == [[0, 1, 2, 0, 3], [1, 3], [3]]
    assert x.lengths.tolist() == [3, 1, 2]
    german = write(tmp_path / f"de.{suffix}", pack("äb ä\nb\n\n".encode()))
    english = write(tmp_path / f"en.{suffix}", pack(b"xy\n\nz"))
    again, given = read_pairs((german, english), GERMAN, ENGLISH)
    assert again.tokens.equal(x.tokens)
    assert given.given.tokens.equal(context.given.tokens)
    from_memory, _ = read_pairs([("äb ä", "xy"), ("b", ""), ("", "z")], GERMAN, ENGLISH)
    assert from_memory.tokens.equal(x.tokens)


def test_the_direction_is_chosen_by_columns(tmp_path):
    table = write(tmp_path / "p.tsv", b"x\ty\tnote\n")
    assert list(pairs(table)) == [("x", "y")]
    assert list(pairs(table, source_column=1, target_column=0)) == [("y", "x")]
    assert list(pairs(table, source_column=2, target_column=0)) == [("note", "x")]


def test_two_files_of_unequal_length_name_both_counts(tmp_path):
    one, other = write(tmp_path / "a.de", b"1\n2\n3\n"), write(tmp_path / "a.en", b"1\n2\n3\n4\n5\n")
    for files, message in (((one, other), r"a.de has 3 lines and .*a.en has 5"), ((other, one), "has 5 .* has 3")):
        with pytest.raises(UserError, match=message):
            read_pairs(files, Bytes(), Bytes())


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"a\tb\na b\n", {}, r"p.tsv, line 2 has no tab"),
        (b"a\tb\n", {"target_column": 2}, r"p.tsv, line 1 has 2 columns: counted from 0, none is 2"),
        (b"a\tb\n", {"target_column": 0}, "two different columns"),
        (b"a\tb\n", {"source_column": -1}, "two different columns"),
        (b"a\tb\n\xff\tb\n", {}, r"p.tsv, line 2: byte 1 is not UTF-8"),
        (b"", {}, r"p.tsv is empty"),
        (b"a\tb\nabc\tb\n", {"length": 3}, r"p.tsv, line 2: 4 tokens are more than the 3 allowed"),
        (b"abc\tb\n", {"length": 3, "too_long": "skip"}, r"All 1 pairs of .*p.tsv have more than 3 tokens"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, options, message):
    with pytest.raises(UserError, match=message):
        read_pairs(write(tmp_path / "p.tsv", content), Bytes(), Bytes(), **options)


def test_a_sentence_that_cannot_be_encoded_is_named(tmp_path):
    table = write(tmp_path / "p.tsv", b"b\tx\nb\tq\n")
    with pytest.raises(UserError, match=r"p.tsv, line 2: 'q' at position 0"):
        read_pairs(table, GERMAN, ENGLISH)
    with pytest.raises(UserError, match="no sentence pairs"):
        read_pairs([], GERMAN, ENGLISH)


def test_long_pairs_are_left_out_and_counted(tmp_path):
    table = write(tmp_path / "p.tsv", b"a\tb\nabc\tb\na\tabc\nab\tab\n")
    with pytest.warns(RuntimeWarning, match=r"2 of 4 pairs of .*p.tsv have more than 3 tokens: left out"):
        x, context = read_pairs(table, Bytes(), Bytes(), length=3, too_long="skip")
    assert x.lengths.tolist() == context.given.lengths.tolist() == [2, 3]


@pytest.mark.skipif("EBAR_DATA" not in os.environ, reason="EBAR_DATA names no folder with Tatoeba")
def test_tatoeba_is_whole():
    table = Path(os.environ["EBAR_DATA"]) / "tatoeba-deu-eng" / "test.tsv.xz"
    x, context = read_pairs(table, Bytes(), Bytes(), source_column=1, target_column=0)
    assert context.rows == len(x.lengths) == 3402
