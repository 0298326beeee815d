"""Text as one stream, in columns; cleaned, shuffled; lengths of segments that vary."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

import ebar
from ebar.data import StreamData
from ebar.data.corpus import Corpus
from ebar.data.prose import letters_only, without_markup
from ebar.data.stream import Stream, Varied
from ebar.errors import UserError


def streams(data: Corpus) -> Any:
    return data.parts


def test_columns_are_contiguous_and_the_remainder_is_dropped():
    stream = Stream(torch.arange(11), 2)
    assert stream.columns(3).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert stream.segments(5, seed=0, epoch=3) == [2, 2, 1]
    assert len(stream) == 5
    assert stream.fetch(torch.tensor([4, 0])).tokens.tolist() == [[8, 9], [0, 1]]
    with pytest.raises(UserError, match="11 tokens, too few for 12 columns"):
        stream.columns(12)


def test_varied_lengths_fill_the_column_and_hang_on_seed_and_epoch_alone():
    stream = Stream(torch.zeros(1, dtype=torch.int), 70, Varied())
    lengths = stream.segments(100_003, seed=1, epoch=2)
    assert sum(lengths) == 100_003
    assert lengths == stream.segments(100_003, seed=1, epoch=2)
    assert lengths != stream.segments(100_003, seed=1, epoch=3)
    assert lengths != stream.segments(100_003, seed=2, epoch=2)
    half = [length for length in lengths[:-1] if length < 52]
    # About 1,466 lengths, each round 35 with a chance of 5 %: 73 ± 8.3, here within 6 deviations.
    assert 23 < len(half) < 123
    whole = torch.tensor([length for length in lengths if length >= 52], dtype=torch.float64)
    # Cut down to whole numbers, so 69.5 in the mean and a deviation of 5: the mean's is 0.13, here within 6.
    assert float(whole.mean()) == pytest.approx(69.5, abs=0.8)
    assert float(whole.std()) == pytest.approx(5.0, abs=0.6)


def test_no_varied_length_is_below_the_shortest_but_the_last():
    lengths = Varied(half=1.0, deviation=50.0, shortest=5).lengths(5000, 10, Generator().manual_seed(0))
    assert min(lengths[:-1]) == 5
    assert sum(lengths) == 5000


def test_letters_only_by_hand():
    assert letters_only("In 1984, É-mail & co.\n") == " in one nine eight four mail co"
    assert letters_only("— ½ —\n") == ""
    assert "".join(map(letters_only, ["One\n", "\n", "two 3"])) == " one two three"


def test_of_a_dump_of_wikipedia_only_what_a_reader_sees_is_left():
    dump = [
        "<title>Not seen</title>\n",
        "<text xml:space=\"preserve\">'''Art''' of the [[Middle Ages|mediaeval]] {{icon}} world\n",
        "See [http://a.example the site]&lt;ref name=x&gt;no&lt;/ref&gt; and [[Image:x.png|thumb|20px|a caption]]\n",
        "[[Category:History|*]][[de:Kunst]]</text>\n",
        "<id>not seen</id>\n",
        '<text xml:space="preserve">#REDIRECT [[Other]]</text>\n',
        "not seen\n",
    ]
    found = "".join(letters_only(line) for line in without_markup(dump))
    assert found == " art of the mediaeval world see the site and a caption history"


def test_tags_up_to_the_last_one_of_a_line_are_removed_as_the_filter_does():
    """The last line of a text so loses its words where a tag stands before them; Mahoney's filter does that too."""
    assert list(without_markup(["<text a>b</text>c\n"])) == ["c\n"]


def test_lines_are_shuffled_by_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{n:03d}\n" for n in range(200)))
    plain = ebar.read_stream(path, length=4)
    first, again, other = (ebar.read_stream(path, length=4, shuffle=True, seed=seed) for seed in (1, 1, 2))
    as_lines = [bytes(streams(data)["train"].tokens.tolist()).decode().split() for data in (plain, first, again, other)]
    assert as_lines[0] == sorted(as_lines[0])
    assert as_lines[1] == as_lines[2] != as_lines[3]
    held_out = bytes(streams(first)["validation"].tokens.tolist()).decode().split()
    assert sorted(as_lines[1] + held_out) == [f"{n:03d}" for n in range(200)]


def test_text8_of_a_file_has_27_characters(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox; 12 Jumps!\nover the LAZY dog\n" * 4)
    data = ebar.read_stream(path, length=8, tokeniser="characters", clean="text8")
    tokens = torch.cat([streams(data)["train"].tokens, streams(data)["validation"].tokens]).tolist()
    assert data.tokeniser is not None
    line = " the quick brown fox one two jumps over the lazy dog"
    assert data.tokeniser.decode(tokens) == line * 4
    assert data.space.end is None


def test_parts_limits_and_what_is_refused(tmp_path: Path) -> None:
    for name, length in (("train", 100), ("validation", 40), ("test", 30)):
        (tmp_path / name).write_bytes(bytes(range(length)))
    parts: Any = {name: tmp_path / name for name in ("train", "validation", "test")}
    data = StreamData(**parts, length=7, limit=50, held_out_limit=20).read()
    assert [len(streams(data)[name].tokens) for name in ("train", "validation", "test")] == [50, 20, 20]
    assert data.train.tokens.shape == (7, 7)
    with pytest.raises(UserError, match="The test text has 30 tokens, too few for one segment of 31"):
        StreamData(**parts, length=31).read()
    with pytest.raises(UserError, match=r"leave out data\.cache"):
        StreamData(**parts, cache=tmp_path).read()
    with pytest.raises(UserError, match=r"leave out training\.maximal_length"):
        StreamData(**parts).read(maximal_length=3)
