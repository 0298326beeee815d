"""Shards on a local Ray cluster: one cluster, and so one test, as it takes seconds to start."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebar.errors import UserError
from ebar.shards import Workers, run_shards
from ebar.shards.on_ray import ray_cluster
from tests.shards import work


@pytest.fixture
def cluster() -> Iterator[None]:
    pytest.importorskip("ray", reason="ray is not installed")
    with ray_cluster(4):
        yield


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_ray_gives_the_same_bytes(cluster: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def on(workers: int) -> Workers:
        return Workers(backend="ray", workers=workers)

    common = work.Common(tmp_path)
    assert list(run_shards(work.dies_once, common, range(9), workers=on(2), in_order=True)) == [
        (job, job**2) for job in range(9)
    ]
    assert (tmp_path / "died").exists()
    received = list(tmp_path.glob("received-*"))
    assert received
    assert all(path.read_text() == "x" for path in received)  # once for each process, not for each shard
    with pytest.raises(UserError, match="Choose another job"):
        list(run_shards(work.fails, common, [0, 1], workers=on(2)))
    with pytest.raises(UserError, match=r"not enough memory.*what was finished is kept"):
        list(run_shards(work.squared, work.TooLarge(), [0], workers=on(1)))
    with pytest.raises(UserError, match="died 3 times in a row"):
        list(run_shards(work.dies_always, common, [0], workers=on(1)))
    assert capfd.readouterr().out == ""  # though workers have died: what is written there may be a file of the user's
    for made in work.THREE:
        name = made.__name__
        ours = made(tmp_path / f"{name}-here", Workers())
        for workers in (2, 4):
            assert made(tmp_path / f"{name}-{workers}", on(workers)) == ours, (name, workers)
    assert work.scored(tmp_path, on(2)) == work.scored(tmp_path, Workers())
    flag = tmp_path / "killed while distilling"
    assert work.distilled(tmp_path / "killed", on(2), flag) == work.distilled(tmp_path / "whole", Workers())
    assert flag.exists()


def test_an_address_where_nobody_answers_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=rf"No Ray cluster answers at {address} .*unset it"):
        list(run_shards(work.squared, work.Common(tmp_path), range(2), workers=Workers(backend="ray", workers=1)))
    assert os.environ["RAY_ADDRESS"] == address
