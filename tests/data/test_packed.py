import json
import shutil
from contextlib import suppress
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from ebar.cli import main
from ebar.data.built_tokeniser import read_tokeniser_file
from ebar.data.packed import Packed, PackedPairs, pack_from, pack_pairs
from ebar.data.parallel import encoded_pairs, read_pairs
from ebar.data.text import blocks_of, read_tokens, windows
from ebar.data.tokenisers import Bytes
from ebar.errors import UserError
from ebar.training.batches import Batches, Budgeted, block_order
from tests.store.disk import Dead, failing

ROWS = torch.arange(2)
PAIRS = [("x" * (n % 7), "y" * (n * n % 11)) for n in range(60)]


def pack_stream(folder, blocks, **options):
    return pack_from(folder, lambda start: islice(blocks(), start, None), **options)


def stream(tmp_path, length=5):
    path = tmp_path / "c.txt"
    path.write_text("".join(f"line number {n}\n" for n in range(40)))
    packed = pack_stream(tmp_path / "packed", lambda: blocks_of(path, Bytes()), vocabulary=256, length=length)
    return path, packed


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif one is not None:
        assert torch.equal(one, other)


@pytest.mark.parametrize("source", [Batches, Budgeted])
def test_training_from_disk_sees_what_training_from_memory_sees(tmp_path, source):
    path, packed = stream(tmp_path)
    x = windows(read_tokens(path, Bytes()), 5)
    size = {"batch_size": 7} if source is Batches else {"tokens": 31}
    pairs = pack_pairs(tmp_path / "pairs", lambda: encoded_pairs(PAIRS, Bytes(), Bytes()), vocabularies=(257, 257))
    for stored, read in ((packed, x), (pairs, read_pairs(PAIRS, Bytes(), Bytes()))):
        one, other = (source(data=data, seed=3, **size) for data in (stored, read))
        assert len(one) == len(other) > 3
        for epoch in (0, 1):
            for a, b in zip(one.at(epoch, 2), other.at(epoch, 2), strict=True):
                same(a, b)


@pytest.mark.parametrize(("vocabulary", "dtype"), [(1 << 16, "<u2"), ((1 << 16) + 1, "<u4")])
def test_tokens_are_raw_and_little_endian(tmp_path, vocabulary, dtype):
    tokens = np.array([0, 1, 258, vocabulary - 1])
    packed = pack_stream(tmp_path / "p", lambda: [tokens[:1], tokens[1:]], vocabulary=vocabulary, length=2)
    assert np.fromfile(tmp_path / "p" / "tokens.bin", dtype).tolist() == tokens.tolist()
    assert packed.fetch(torch.tensor([1, 0, 1])).tokens.tolist() == [
        [258, vocabulary - 1],
        [0, 1],
        [258, vocabulary - 1],
    ]
    header = json.loads((tmp_path / "p" / "header.json").read_text())
    assert header["description"] == {"vocabulary": vocabulary, "length": 2}
    assert header["state"] == {"dtype": dtype, "tokens": 4, "rows": None, "length": 2, "blocks": 2}
    assert header["done"] is True


def test_writing_happens_once_and_starts_anew_after_an_interruption(tmp_path):
    calls: list[int] = []

    def blocks():
        calls.append(len(calls))
        yield np.array([1, 2, 3])
        if len(calls) == 1:
            raise KeyboardInterrupt
        yield np.array([4])

    with pytest.raises(KeyboardInterrupt):
        pack_stream(tmp_path / "p", blocks, vocabulary=9, length=2)
    with pytest.raises(UserError, match="holds no packed tokens, or not all of them"):
        Packed(tmp_path / "p")
    for _ in range(2):
        packed = pack_stream(tmp_path / "p", blocks, vocabulary=9, length=2)
        assert packed.fetch(torch.arange(2)).tokens.tolist() == [[1, 2], [3, 4]]
    assert len(calls) == 2
    with pytest.raises(UserError, match=r"made from something else \(what differs: length\)"):
        pack_stream(tmp_path / "p", blocks, vocabulary=9, length=3)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_pairs_killed_or_out_of_space_at_any_change_of_the_disk_are_packed_as_if_nothing_had_happened(tmp_path):
    """Whatever is written to the token files themselves comes before the changes that are counted here."""
    pairs = [([1, 2], [1]), ([1], [2, 2, 1])]

    def pack(folder):
        packed = pack_pairs(folder, lambda: iter(pairs), vocabularies=(3, 3))
        return [
            [tuple(x.prefix(row)) for row in range(2)] for x in (packed.source.fetch(ROWS), packed.target.fetch(ROWS))
        ]

    with failing() as disk:
        whole = pack(tmp_path / "whole")
    assert whole == [[tuple(pair[side]) for pair in pairs] for side in (0, 1)]
    assert disk.count > 20
    for full in (False, True):
        for at in range(1, disk.count + 1):
            folder = tmp_path / f"{full}-{at}"
            with suppress(Dead, UserError), failing(at, full=full):
                pack(folder)
            assert pack(folder) == whole, at


def test_damage_is_told(tmp_path):
    _, packed = stream(tmp_path)
    tokens = packed.folder / "tokens.bin"
    whole = tokens.read_bytes()
    tokens.write_bytes(whole[:-1])
    with pytest.raises(
        UserError, match=r"tokens.bin is damaged \(tokens.bin has .* bytes .*\): delete .*packed, and run"
    ):
        Packed(packed.folder)
    tokens.write_bytes(whole)
    (packed.folder / "header.json").write_text('{"format": 1}')  # as before there was a store
    with pytest.raises(UserError, match="not of this version of ebar: delete"):
        Packed(packed.folder)
    with pytest.raises(UserError, match="holds no packed tokens"):
        Packed(tmp_path / "nowhere")


def test_what_cannot_be_packed_is_refused(tmp_path):
    with pytest.raises(UserError, match="1 tokens, too few for one window of 2"):
        pack_stream(tmp_path / "p", lambda: [np.array([1])], vocabulary=2, length=2)
    with pytest.raises(ValueError, match="not all in a vocabulary of 2"):
        pack_stream(tmp_path / "p", lambda: [np.array([1, 2])], vocabulary=2, length=2)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Could not save"):
        pack_stream(tmp_path / "file" / "p", lambda: [np.array([1, 1])], vocabulary=2, length=2)
    with pytest.raises(UserError, match="holds no packed tokens"):
        Packed(tmp_path / "p")


def test_a_side_that_was_deleted_is_packed_again(tmp_path):
    for _ in range(2):
        packed = pack_pairs(tmp_path / "p", lambda: iter([([1], [1])] * 2), vocabularies=(2, 2))
        assert len(packed) == 2
        shutil.rmtree(packed.target.folder)


def test_sides_of_different_corpora_are_told(tmp_path):
    pairs = {2: [([1], [1])] * 2, 3: [([1], [1])] * 3}
    one, other = (pack_pairs(tmp_path / str(n), partial(iter, pairs[n]), vocabularies=(2, 2)) for n in pairs)
    with pytest.raises(UserError, match="not of one corpus"):
        PackedPairs(one.target, other.source)


def test_a_stream_that_was_killed_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("ebar.data.packed.SAVED", 40)
    blocks = [np.arange(n % 7) for n in range(60)]
    asked = []

    def from_block(start):
        asked.append(start)
        yield from blocks[start:]

    def packed(folder):
        return pack_from(folder, from_block, vocabulary=9, length=2)

    with failing() as disk:
        packed(tmp_path / "whole")
    whole = (tmp_path / "whole" / "tokens.bin").read_bytes()
    for at in range(4, disk.count, 5):
        with pytest.raises(Dead), failing(at):
            packed(tmp_path / str(at))
        if (tmp_path / str(at) / "tokens.bin").exists():
            with (tmp_path / str(at) / "tokens.bin").open("ab") as file:
                file.write(b"what was written, and not noted")
        packed(tmp_path / str(at))
        assert (tmp_path / str(at) / "tokens.bin").read_bytes() == whole, at
    assert max(asked) > 40


def test_two_processes_pack_what_one_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ebar.data.text.AT_ONCE", 5)
    monkeypatch.chdir(tmp_path)
    text = "".join(f"line number {n} of {n * n}\n" for n in range(60))
    (tmp_path / "text.txt").write_text(text)
    words = ["pack", "--data.train", "text.txt", "--data.tokeniser", "bpe", "--data.vocabulary", "300",
             "--data.length", "8", "--json"]  # fmt: skip
    found = []
    for cache, backend in (("one", "process"), ("two", "joblib")):
        assert main([*words, "--data.cache", cache, "--backend", backend, "--workers", "2"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    one, two = ((tmp_path / each["folder"] / "tokens.bin").read_bytes() for each in found)
    assert one == two
    tokeniser = read_tokeniser_file(tmp_path / found[1]["tokeniser"])
    assert tokeniser.decode(Packed(tmp_path / found[1]["folder"])._tokens.tolist()) == text
    (tmp_path / "text.txt").write_text("another text\n" * 50)
    assert main([*words, "--data.cache", "one"]) == 2
    assert "made from something else (what differs: text" in capsys.readouterr().err


def test_an_order_by_blocks_has_every_row_once_and_stays_in_few_blocks(monkeypatch):
    monkeypatch.setattr("ebar.training.batches.TOGETHER", 3)
    order = block_order(47, 5, generator=torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(47))
    assert order.tolist() != block_order(47, 5, generator=torch.Generator().manual_seed(1)).tolist()
    # Ten blocks, the last of two rows: at any time three are open, so 15 rows come from three blocks.
    blocks = (order // 5).tolist()
    starts = [0]
    while starts[-1] < 47:
        near = set(blocks[starts[-1] : starts[-1] + 3])
        end = starts[-1]
        seen: set[int] = set()
        while end < 47 and (blocks[end] in seen or len(seen) < 3):
            seen.add(blocks[end])
            end += 1
        assert near <= seen
        assert not seen & set(blocks[end:])
        starts.append(end)
    assert len(starts) == 5  # three, three, three, one
    whole = Batches(data=torch.arange(47), batch_size=4, seed=2, block=5)
    batches = [batch.tolist() for batch in whole.at(1, 0)]
    assert [batch.tolist() for batch in whole.at(1, 7)] == batches[7:]
    assert sorted(row for batch in batches for row in batch) == list(range(47))
