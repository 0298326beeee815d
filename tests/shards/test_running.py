"""Shards give the same whoever runs them: their order, their deaths, their errors, what memory holds."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.data.languages import Language
from ebar.errors import UserError
from ebar.evaluation.exact_cross_entropy import exact_cross_entropy
from ebar.models.tabular import Tabular
from ebar.shards import Workers, run_shards
from ebar.shards.attempt import Outcome, Setting, attempt, failed
from ebar.shards.running import AHEAD, DEATHS, _ordered, spread
from tests.shards import work
from tests.store.disk import Dead, failing

HERE = Setting(1, torch.float32, "")


class WorkerDiedError(Exception):
    pass


class Pretended:
    """A pool whose shards finish when they are waited for, the newest first; some die at first."""

    def __init__(self, number: int = 2, dies: dict[int, int] | None = None, breaks: bool = False):
        self.number, self.dies, self.breaks = number, dict(dies or {}), breaks
        self.begun: list[int] = []
        self.renewed = 0
        self.broken = False

    def submit(self, job: int) -> "Future[Any]":
        if self.broken:
            raise WorkerDiedError
        self.begun.append(job)
        future: Future[Any] = Future()
        if self.dies.get(job, 0) > 0:
            self.dies[job] -= 1
            self.broken = self.breaks
            future.set_exception(WorkerDiedError())
        else:
            future.set_result(Outcome(job**2))
        return future

    def is_death(self, error: BaseException) -> bool:
        return isinstance(error, WorkerDiedError)

    def renew(self) -> None:
        self.renewed += 1
        self.broken = False


@pytest.mark.parametrize("breaks", [False, True])
def test_each_shard_is_yielded_once_though_workers_die(breaks: bool) -> None:
    pool = Pretended(dies={0: 1, 3: 2, 9: 1}, breaks=breaks)
    found = list(spread(pool, range(10), False))
    assert sorted(found) == [(job, job**2) for job in range(10)]
    assert pool.renewed >= 2
    assert sorted(pool.begun) == sorted([*range(10), 0, 3, 3, 9])


def test_what_always_dies_ends_in_one_sentence_after_all_others_were_done() -> None:
    found: list[int] = []
    shards = spread(Pretended(dies={4: 99}), range(8), False)
    with pytest.raises(UserError, match=r"died 3 times in a row.*fewer --workers.*finished is kept"):
        found.extend(number for number, _ in shards)
    assert sorted(found) == [0, 1, 2, 3, 5, 6, 7]
    assert DEATHS == 3


def test_order_is_kept_and_nothing_runs_far_ahead() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(40):
            taken.append(job)
            yield job

    seen = 0
    for number, made in _ordered(spread(Pretended(dies={5: 1}), jobs(), True)):
        assert (number, made) == (seen, seen**2)
        assert len(taken) <= seen + 1 + 4 * AHEAD * 2
        seen += 1
    assert seen == 40


def test_in_this_process_threads_are_those_asked_for_and_come_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    found = list(run_shards(lambda common, job: torch.get_num_threads(), None, range(2), workers=Workers(threads=3)))
    assert found == [(0, 3), (1, 3)]
    assert torch.get_num_threads() == before


def test_what_goes_wrong_in_a_worker_travels_as_words() -> None:
    assert attempt(work.fails, None, 0, HERE).value() == 1
    with pytest.raises(UserError, match="Choose another job"):
        attempt(work.fails, None, 1, HERE).value()
    with pytest.raises(UserError, match=r"not enough memory.*fewer --workers"):
        attempt(work.fails, None, 2, HERE).value()
    for words in ("std::bad_alloc", "could not create a primitive", "CUDA out of memory. Tried to allocate 2 GiB"):
        assert "not enough memory" in failed(RuntimeError(words)).failure
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by nought") as caught:
        attempt(work.fails, None, 3, HERE).value()
    assert "in fails" in caught.value.__notes__[0]


def test_what_cannot_be_sent_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"cannot be sent to other processes \(.*lock.*\): use --backend process"):
        list(run_shards(work.anything, threading.Lock(), [1], workers=Workers(backend="joblib", workers=1)))


def test_a_killed_estimate_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    with failing() as disk:
        whole = work.estimated(tmp_path / "whole", Workers())
    for at in range(3, disk.count, 7):
        with pytest.raises(Dead), failing(at):
            work.estimated(tmp_path / str(at), Workers())
        assert work.estimated(tmp_path / str(at), Workers()) == whole, at
    with pytest.raises(UserError, match=r"made from something else \(what differs: threads"):
        work.estimated(tmp_path / "whole", Workers(threads=2))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process is Linux's")
def test_a_worker_that_the_system_gives_no_more_memory_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"A worker has not enough memory.*fewer --workers.*finished is kept"):
        list(run_shards(work.scarce, None, [0], workers=Workers(backend="joblib", workers=1)))


def test_joblib_gives_the_same_bytes_where_a_worker_is_killed(tmp_path: Path) -> None:
    """One process, killed in the middle of the second round, and another in its place."""
    ours = work.distilled(tmp_path / "one", Workers())
    flag = tmp_path / "died"
    theirs = work.distilled(tmp_path / "two", Workers(backend="joblib", workers=1), flag)
    assert flag.exists()
    assert theirs == ours


def test_two_processes_of_joblib_give_the_same(tmp_path: Path) -> None:
    two = Workers(backend="joblib", workers=2)
    assert work.estimated(tmp_path / "two", two) == work.estimated(tmp_path / "one", Workers())
    assert work.scored(tmp_path, two) == work.scored(tmp_path, Workers())


def test_an_exact_cross_entropy_in_shards_has_the_same_last_bit() -> None:
    truth = Language(motif="11", length=9).distribution()
    model = Tabular.random(truth.space, generator=Generator().manual_seed(5))
    found = [exact_cross_entropy(truth, model, batch=4, workers=workers) for workers in (None, Workers())]
    assert found[0] == found[1]
