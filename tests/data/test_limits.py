"""Data of which a part is enough: how much is read, and which."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ebar.data import ImagesData, ParallelData, TextData
from ebar.data.images import Images
from ebar.errors import UserError


def test_text_is_cut_at_a_number_of_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    data = TextData(train=tmp_path / "a.txt", validation=tmp_path / "a.txt", length=10, limit=35, held_out_limit=20)
    corpus = data.read()
    assert corpus.train.tokens.flatten().tolist() == list(range(30))
    assert corpus.validation.tokens.flatten().tolist() == list(range(20))
    whole = TextData(train=tmp_path / "a.txt", validation=tmp_path / "a.txt", length=10).read()
    assert len(whole.train.lengths) == len(whole.validation.lengths) == 10


@pytest.fixture
def parallel(tmp_path: Path) -> ParallelData:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"s{number}\tt{number}\n" for number in range(10)))
    return ParallelData(
        train=path, validation=path, test=path, tokeniser="bytes", limit=4, held_out_limit=3, source_column=1,
        target_column=0,
    )  # fmt: skip


def test_training_pairs_are_drawn_by_the_seed_and_held_out_pairs_are_evenly_spaced(parallel: ParallelData) -> None:
    found = []
    for seed in (0, 0, 1):
        corpus = parallel.read(seed=seed)
        texts = corpus.text(corpus.train)
        assert len(set(texts)) == 4
        found.append(texts)
    assert found[0] == found[1] != found[2]


def test_a_tokeniser_is_made_from_the_pairs_that_were_drawn(parallel: ParallelData) -> None:
    with pytest.raises(UserError, match="not in the alphabet"):  # a number of the held-out pairs that was not drawn
        replace(parallel, tokeniser="characters").read()


def test_test_pairs_are_kept_as_they_are_written(tmp_path: Path, parallel: ParallelData) -> None:
    everything = ParallelData(train=parallel.train, test=parallel.test, tokeniser="characters", held_out_limit=3,
                              validation=parallel.train)  # fmt: skip
    corpus = everything.read()
    assert corpus.written == [("s0", "t0"), ("s3", "t3"), ("s6", "t6")]
    assert corpus.text(corpus.test) == ["t0", "t3", "t6"]
    assert len(corpus.train.lengths) == 10


def test_images_are_drawn_by_the_seed_once_the_last_are_held_out(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=np.arange(20, dtype=np.uint8).reshape(20, 1, 1))
    data = ImagesData(train=path, limit=6, validation_size=5)
    parts = [data.read(seed=seed).parts for seed in (0, 1)]
    for part in parts:
        train, validation = part["train"], part["validation"]
        assert isinstance(train, Images)
        assert isinstance(validation, Images)
        assert validation.pixels.flatten().tolist() == [15, 16, 17, 18, 19]
        assert len(set(train.pixels.flatten().tolist())) == 6
        assert int(train.pixels.max()) < 15
    assert not torch.equal(parts[0]["train"].pixels, parts[1]["train"].pixels)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="leaves some"):
        ImagesData(train=path, validation_size=20).read()


def test_a_limit_of_what_stays_on_disk_is_refused(tmp_path: Path, parallel: ParallelData) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(100))
    text = TextData(train=tmp_path / "a.txt", validation=tmp_path / "a.txt", length=10, limit=20, cache=tmp_path)
    pairs = ParallelData(train=parallel.train, validation=parallel.train, limit=2, cache=tmp_path)
    for data in (text, pairs):
        with pytest.raises(UserError, match=r"leave out data\.limit"):
            data.read()
