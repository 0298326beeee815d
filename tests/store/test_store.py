"""A store keeps what was made, whatever happens to the process, and never gives it out for something else."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ebar.errors import UserError
from ebar.store.fingerprint import describe, fingerprint, source_fingerprint
from ebar.store.stages import open_stage, stage_seconds
from ebar.store.store import open_store
from ebar.store.writing import locked, to_json
from ebar.types import Sequences
from tests.store.disk import Dead, failing

HOLDER = """
import sys
from pathlib import Path
from ebar.store.store import open_store
with open_store(Path(sys.argv[1]), description={"a": 1}, seed=0) as store:
    print("held", flush=True)
    sys.stdin.read()
"""


def journey(folder: Path | None, *, seed: int = 3, size: int = 2) -> dict[str, Any]:
    """Two stages, the second made from the first in several parts, and a file of the store's own."""
    with open_store(folder, description={"size": size}, seed=seed) as store:
        with store.stage("first", {"size": size}) as first:
            if not first.done:
                first.write("draws.json", to_json(torch.rand(size, generator=_from(first.seed)).tolist()))
        draws = json.loads(first.read("draws.json"))
        with store.stage("deep/second", {"of": first.description}) as second:
            for number in range(size):
                if not second.has(f"part-{number}"):
                    second.write(f"part-{number}", to_json(draws[number] * second.seed))
                if not second.done:
                    second.save({"parts": number + 1})
        store.write("results.json", to_json(draws))
        return {
            "draws": draws,
            "parts": [json.loads(second.read(f"part-{number}")) for number in range(size)],
            "state": second.state,
            "done": (first.done, second.done),
        }


def _from(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kept(folder: Path) -> dict[str, Any]:
    """All files, times and the lock left out."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "lock":
            name = path.relative_to(folder).as_posix()
            found[name] = path.read_bytes()
            if path.name == "header.json":
                header = json.loads(found[name])
                found[name] = {key: value for key, value in header.items() if key not in ("seconds", "begun")}
    return found


def test_a_journey_killed_before_any_one_change_of_the_disk_ends_as_the_one_that_never_was(tmp_path):
    with failing() as disk:
        result = journey(tmp_path / "whole")
    whole = kept(tmp_path / "whole")
    assert result["done"] == (True, True)
    assert disk.count > 40
    for at in range(1, disk.count + 1):
        folder = tmp_path / f"killed-{at}"
        with pytest.raises(Dead), failing(at):
            journey(folder)
        assert journey(folder) == result, at
        assert kept(folder) == whole, at


def test_a_disk_that_is_full_at_any_change_is_told_in_a_sentence_and_loses_nothing(tmp_path):
    with failing() as disk:
        result = journey(tmp_path / "whole")
    whole, told = kept(tmp_path / "whole"), 0
    for at in range(1, disk.count + 1):
        folder = tmp_path / f"full-{at}"
        said = ""
        try:
            with failing(at, full=True):
                journey(folder)
        except UserError as error:
            said = str(error)
        assert re.match(r"(Could not save .*: the disk is full; .* run it again\.)?$", said), at
        told += said != ""
        assert journey(folder) == result, at
        assert kept(folder) == whole, at
    assert told > disk.count * 0.9  # that something old could not be removed is no reason to stop


def test_a_stage_that_is_done_is_not_made_again_and_one_that_was_interrupted_goes_on(tmp_path):
    ran = []
    for attempt in range(3):
        try:
            with open_store(tmp_path, description={}, seed=0) as store, store.stage("one") as stage:
                if not stage.done:
                    ran.append(attempt)
                    if attempt == 0:
                        stage.save({"rounds": 7})
                        raise KeyboardInterrupt
                    assert stage.state == {"rounds": 7}
        except KeyboardInterrupt:
            continue
    assert ran == [0, 1]


def test_a_stage_that_is_postponed_is_not_done(tmp_path):
    with open_stage(tmp_path, {}) as stage:
        stage.postpone()
    with open_stage(tmp_path, {}) as stage:
        assert not stage.done
    with open_stage(tmp_path, {}) as stage:
        assert stage.done


def test_a_stage_made_from_something_else_is_refused_and_the_difference_is_named(tmp_path):
    made = {"model": {"kind": "lstm", "hidden": 3}, "draws": 5}
    with open_store(tmp_path, description={}, seed=0) as store:
        with store.stage("pool", made) as stage:
            stage.write("part", b"precious")
        before = kept(tmp_path)
        other = {"model": {"kind": "lstm", "hidden": 4}, "draws": 5, "seed": 1}
        message = r"pool was made from something else \(what differs: model\.hidden, seed\): choose another name"
        with pytest.raises(UserError, match=message), store.stage("pool", other):
            pass
        assert kept(tmp_path) == before
        with store.stage("pool", other, rebuild=True) as stage:
            assert not stage.done
            assert not stage.has("part")
        assert json.loads((tmp_path / "pool" / "header.json").read_text())["description"] == other


def test_files_without_a_header_and_headers_of_other_versions_are_never_misread(tmp_path):
    (tmp_path / "part-0").write_bytes(b"of what?")
    with pytest.raises(UserError, match="holds files, and no header that says of what"), open_stage(tmp_path, {}):
        pass
    header = tmp_path / "header.json"
    header.write_text('{"format": 1, "rows": 3}')
    with (
        pytest.raises(UserError, match=r"is not of this version of ebar: delete .*, or choose"),
        open_stage(tmp_path, {}),
    ):
        pass
    for content in ("", "{", "\x00"):
        header.write_text(content)
        with (
            pytest.raises(UserError, match=r"header.json is damaged \(.*\): delete .*, and run"),
            open_stage(tmp_path, {}),
        ):
            pass
    with open_stage(tmp_path, {}, rebuild=True):
        assert not (tmp_path / "part-0").exists()
    good = json.loads(header.read_text())
    for absent in set(good) - {"format"}:
        header.write_text(json.dumps({name: value for name, value in good.items() if name != absent}))
        with pytest.raises(UserError, match="is damaged"), open_stage(tmp_path, {}):
            pass


def test_a_file_of_a_stage_that_is_gone_is_told(tmp_path):
    with open_stage(tmp_path / "pool", {}) as stage:
        pass
    with pytest.raises(UserError, match=r"fitted is damaged \(No such file.*\): delete .*pool, and run"):
        stage.read("fitted")
    stage.write("weights", b"12345678 no tensors")
    with pytest.raises(UserError, match=r"weights is damaged \(.*\): delete it, and run the same command again\.$"):
        stage.tensors("weights")


def test_times_add_up_over_restarts_and_are_listed_in_the_order_of_the_stages(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ebar.store.stages.time.monotonic", lambda: now[0])
    monkeypatch.setattr("ebar.store.stages.time.time", lambda: now[0])

    def interrupted(seconds: float) -> None:
        with open_store(tmp_path, description={}, seed=0) as store, store.stage("z"):
            now[0] += seconds
            raise KeyboardInterrupt

    for seconds in (2.0, 3.0):
        with pytest.raises(KeyboardInterrupt):
            interrupted(seconds)
    with open_store(tmp_path, description={}, seed=0) as store:
        with store.stage("z") as stage:
            now[0] += 4.0
            assert stage.seconds == 9.0
        with store.stage("z") as stage:  # reading it back is not making it
            now[0] += 50.0
        with store.stage("deep/a"):
            now[0] += 1.0
            with open_stage(tmp_path / "deep" / "a" / "own", {}):
                now[0] += 1.0
    assert stage.seconds == 9.0
    assert list(stage_seconds(tmp_path).items()) == [("z", 9.0), ("deep/a", 2.0)]


def test_a_stage_that_is_killed_keeps_the_time_up_to_its_last_save(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ebar.store.stages.time.monotonic", lambda: now[0])

    def killed() -> None:
        with failing() as disk, open_stage(tmp_path / "killed", {}) as stage:
            now[0] += 2.0
            stage.save()
            now[0] += 2.0
            disk.dead = True
            raise Dead

    with pytest.raises(Dead):
        killed()
    with open_stage(tmp_path / "killed", {}) as stage:
        assert stage.seconds == 2.0


def test_random_numbers_are_of_the_stores_seed_and_the_stages_name(tmp_path):
    seeds = set()
    for seed in (0, 1):
        for name in ("a", "b"):
            with open_store(tmp_path / str(seed), description={}, seed=seed) as store, store.stage(name) as stage:
                seeds.add(stage.seed)
    assert len(seeds) == 4
    with open_store(tmp_path / "again", description={}, seed=0) as store, store.stage("a") as stage:
        assert stage.seed in seeds


def test_without_a_folder_all_is_the_same_and_nothing_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert journey(None) == journey(tmp_path / "kept")
    with open_store(None, description={}, seed=0) as store:
        store.write("x", b"1")
        assert store.folder.is_dir()
    with pytest.raises(ZeroDivisionError), open_store(None, description={}, seed=0):
        _ = 1 / 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_store_of_a_living_process_is_refused_and_of_a_dead_one_taken_over(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        message = rf"is in use by another process \({holder.pid}\): wait for it, or choose another name\.$"
        with pytest.raises(UserError, match=message), open_store(tmp_path, description={"a": 1}, seed=0):
            pass
        holder.send_signal(signal.SIGKILL)
    with open_store(tmp_path, description={"a": 1}, seed=0):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    """The parent forks while it holds the lock, and dies; its child goes on."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        with locked(tmp_path):
            child = os.fork()
            if child == 0:
                os.close(writing)
                time.sleep(60)
                os._exit(0)
            os.write(writing, str(child).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        child = int(answer.read())
    os.waitpid(parent, 0)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_store_in_which_nothing_was_made_yet_may_be_taken_over_by_another_description(tmp_path):
    with open_store(tmp_path, description={"size": 1}, seed=1):
        (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=r"another configuration: .* \(what differs: size\)"):
        open_store(tmp_path, description={"size": 2}, seed=2).__enter__()
    with open_store(tmp_path, description={"size": 2}, seed=2, take_over=True) as store:
        assert json.loads((tmp_path / "environment.json").read_text())["seed"] == 2
        with store.stage("one"):
            pass
    with pytest.raises(UserError, match="another configuration"):
        open_store(tmp_path, description={"size": 3}, seed=2, take_over=True).__enter__()


def test_a_process_that_does_not_write_leaves_the_disk_alone(tmp_path):
    with open_store(tmp_path / "run", description={}, seed=0, writes=False) as store:
        store.write("results.json", b"mine")
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Options:
    size: int = 1
    name: str = "a"


class Counted(nn.Module):
    def __init__(self, width: int, share: float = 0.5) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.share = share
        self.calls = 0


def test_a_fingerprint_is_of_what_something_is_and_not_of_what_it_went_through(tmp_path):
    torch.manual_seed(0)
    module = Counted(2)
    before = fingerprint(module)
    module.calls += 1
    module.eval()
    assert fingerprint(module) == before
    module.share = 0.6
    assert fingerprint(module) != before
    module.share = 0.5
    with torch.no_grad():
        module.inner.weight[0, 0] += 1e-6
    assert fingerprint(module) != before
    x = Sequences(torch.tensor([[1, 2], [3, 9]]), torch.tensor([2, 1]))
    padded = Sequences(torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.tensor([2, 1]))
    assert fingerprint(x) == fingerprint(padded) != fingerprint(x._replace(lengths=torch.tensor([2, 2])))
    assert fingerprint(lambda: 1) != fingerprint(lambda: 2)
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    path = tmp_path / "text"
    path.write_text("one")
    known = fingerprint(path)
    path.write_text("three")
    assert fingerprint(path) != known
    with pytest.raises(UserError, match="There is no file"):
        fingerprint(tmp_path / "missing")
    assert describe({"o": Options(2), "n": [1, None, float("inf")], "s": {2, 1}}) == {
        "o": {"kind": "Options", "size": 2, "name": "a"}, "n": [1, None, "inf"], "s": [1, 2],
    }  # fmt: skip


def test_the_fingerprint_of_the_source_changes_with_any_file_of_it(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.py").write_text("x = 1\n")
    known = source_fingerprint.__wrapped__(tmp_path)
    (tmp_path / "notes.txt").write_text("of no matter")
    assert source_fingerprint.__wrapped__(tmp_path) == known
    (tmp_path / "inner" / "one.py").write_text("x = 2\n")
    changed = source_fingerprint.__wrapped__(tmp_path)
    (tmp_path / "inner" / "one.py").rename(tmp_path / "inner" / "two.py")
    assert len({known, changed, source_fingerprint.__wrapped__(tmp_path)}) == 3
    assert source_fingerprint() == source_fingerprint()
