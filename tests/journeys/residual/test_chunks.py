"""Text cut once and kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ebar.build.residual import Found, load_base, load_chunks
from ebar.config.reader import Chosen
from ebar.config.residual import ResidualConfig
from ebar.data.chunks import Chunks, ChunksData, Positives
from ebar.errors import UserError
from ebar.types import Context, Sequences

DATA = ChunksData(prefix=10, continuation=4)


def chunks_of(data: ChunksData, found: Found, folder: Path) -> Chunks:
    return load_chunks(ResidualConfig(base="", data=data, energy=Chosen(kind="unit", options={})), found, folder)


def parts(chunks: Chunks) -> list[Positives]:
    return [chunks.train, chunks.validation, chunks.test]


@pytest.fixture
def q(base):
    return load_base(ResidualConfig(base=str(base), data=DATA, energy=Chosen(kind="unit", options={})))


def test_without_files_the_text_is_the_bases_and_its_last_tenth_is_held_out(q, text, tmp_path):
    chunks = chunks_of(DATA, q, tmp_path)
    tokens = list(text.read_bytes())
    rows = len(tokens) // 14
    held_out = rows // 10
    assert len(chunks.train.x.lengths) == rows - held_out
    assert len(chunks.validation.x.lengths) == held_out
    last = tokens[(rows - held_out) * 14 : (rows - held_out) * 14 + 14]
    assert chunks.validation.context is not None
    assert chunks.validation.context.given.prefix(0) + chunks.validation.x.prefix(0) == last
    assert chunks.test.x.tokens.tolist() == chunks.validation.x.tokens.tolist()


def test_chunks_are_read_back_when_the_text_is_gone(q, text, tmp_path):
    own = tmp_path / "own.txt"
    own.write_bytes(text.read_bytes())
    data = replace(DATA, train=own, chunks=7, validation_chunks=3, test_chunks=2)
    first = chunks_of(data, q, tmp_path)
    own.unlink()
    again = chunks_of(data, q, tmp_path)
    for one, other in zip(parts(first), parts(again), strict=True):
        assert one.x.tokens.tolist() == other.x.tokens.tolist()
        assert one.context is not None
        assert other.context is not None
        assert one.context.given.tokens.tolist() == other.context.given.tokens.tolist()
        assert one.x.lengths.tolist() == other.x.lengths.tolist()
    assert [len(part.x.lengths) for part in parts(again)] == [7, 3, 2]
    (tmp_path / "chunks.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"chunks.safetensors is damaged .* delete it"):
        chunks_of(data, q, tmp_path)


def test_some_chunks_are_taken_from_the_whole_of_the_text():
    tokens = torch.arange(10)[:, None]
    part = Positives(
        Sequences(tokens, torch.ones(10, dtype=torch.long)),
        Context(Sequences(tokens, torch.ones(10, dtype=torch.long))),
    )
    some = part.spread(4)
    assert some.x.tokens.flatten().tolist() == [0, 3, 6, 9]
    assert some.context is not None
    assert some.context.given.tokens.flatten().tolist() == [0, 3, 6, 9]
    assert part.spread(99) is part
    assert part.spread(None) is part
    assert part.spread(1).x.tokens.flatten().tolist() == [0]


def test_too_little_text_is_told(q, tmp_path):
    for content, match in (("", "is empty"), ("short", "too few for one chunk"), ("x" * 20, "only one chunk")):
        path = tmp_path / "text.txt"
        path.write_text(content)
        with pytest.raises(UserError, match=match):
            chunks_of(replace(DATA, train=path), q, tmp_path)


def test_a_prefix_longer_than_the_base_was_trained_on_is_told(q, tmp_path):
    with pytest.raises(
        UserError, match=r"30 tokens and a continuation of 4 are 34 in all, and the base was trained on windows of 24"
    ):
        chunks_of(replace(DATA, prefix=30), q, tmp_path)
