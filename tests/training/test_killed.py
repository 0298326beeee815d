"""Training killed at any instant, and resumed, equals training never killed: to the last bit of every file."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebar.training.run import Run
from tests.training.tiny import kept

ROOT = Path(__file__).parents[2]
KILLS = 25
STEPS = 40  # ten checkpoints; of games and fine-tuning, four epochs


class Server:
    """Runs in processes of their own, forked from one that has torch already."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self.process = process

    def run(
        self, folder: Path, *, steps: int, every: int = 4, after: float | None = None, operation: int | None = None,
        what: str = "everything",
    ) -> Any:  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order: dict[str, Any] = {"what": what, "folder": str(folder), "steps": steps, "every": every}
        order |= {"after": after, "operation": operation}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["signal"] == signal.SIGKILL or answer["code"] == 0, answer
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.training.fork_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Server(process)
        process.stdin.close()


@pytest.mark.parametrize(
    ("what", "steps"),
    [
        ("everything", STEPS),
        ("stream", STEPS // 2),
        ("pretraining", STEPS // 2),
        ("finetune", STEPS // 2),
        ("game", STEPS // 2),
        ("limited", STEPS // 5),
    ],
)
def test_runs_killed_at_25_random_instants_end_as_the_one_that_never_was(what, steps, server, tmp_path):
    """On a stream, the memory that is carried from batch to batch included; of fine-tuning, two tasks in turn; of a
    game, three players and what the last step makes of the next; of a training that has a number of steps, its clock
    stopping it after each of them."""
    began = time.monotonic()
    server.run(tmp_path / "whole", steps=steps, what=what)
    whole, seconds = kept(tmp_path / "whole"), time.monotonic() - began
    assert {"metrics.jsonl", "results.json", f"checkpoints/step-{steps:09d}/state.json"} <= set(whole)
    instants = random.Random()  # any seed will do: there is no instant at which it may fail
    kills, runs, within_a_save = 0, 0, 0
    while kills < KILLS:
        folder = tmp_path / f"killed-{runs}"
        runs += 1
        while server.run(folder, steps=steps, after=instants.uniform(0, seconds / 2), what=what)["signal"]:
            kills += 1
            within_a_save += any(folder.glob("checkpoints/.saving-*"))
            if kills == KILLS:
                server.run(folder, steps=steps, what=what)
                break
        assert kept(folder) == whole
    print(f"{kills} kills in {runs} runs, {within_a_save} of them while a checkpoint was being written or removed")


def test_a_run_killed_before_any_one_change_of_the_disk_ends_as_the_one_that_never_was(server, tmp_path):
    """Every such instant of the whole run, and so every one within the saving and pruning of checkpoints."""
    operations = server.run(tmp_path / "whole", steps=4, every=2, operation=0)["operations"]
    whole = kept(tmp_path / "whole")
    assert operations > 50
    for operation in range(1, operations + 1):
        folder = tmp_path / f"killed-{operation}"
        assert server.run(folder, steps=4, every=2, operation=operation)["signal"] == signal.SIGKILL
        server.run(folder, steps=4, every=2, operation=0)
        assert kept(folder) == whole, operation


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"])
@pytest.mark.parametrize("damage", ["truncated", "garbled", "missing"])
def test_a_damaged_newest_checkpoint_falls_back_with_a_warning_to_the_same_end(name, damage, server, tmp_path):
    server.run(tmp_path, steps=12, operation=0)
    whole = kept(tmp_path)
    run = Run(tmp_path)
    path = run.checkpoints.path(12) / name
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "truncated":
        path.write_bytes(content[:middle])
    elif damage == "garbled":
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        path.unlink()
    with pytest.warns(RuntimeWarning, match="step 12 .* is damaged .*: using the one before"):
        newest = run.checkpoints.newest()
    assert newest is not None
    assert newest.step == 8
    server.run(tmp_path, steps=12, operation=0)  # in a process of its own: beartype draws from Python's random state
    assert (tmp_path / "checkpoints" / "damaged-000000012").is_dir()
    assert {path: content for path, content in kept(tmp_path).items() if "/damaged-" not in path} == whole
