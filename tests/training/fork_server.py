"""Imports torch once, then forks a process for each run it is asked for, and kills it when it is told to.

    {"what": …, "folder": …, "steps": …, "every": …, "after": seconds or null, "operation": number or null}
                                                        → {"signal": …, "code": …, "operations": …}

`operation` makes the process kill itself just before its n-th call to the file system that changes something
(0: never, but count them).
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.journeys.finetune.killed import run_finetune
from tests.journeys.game.killed import run_game
from tests.training.tiny import run_everything, run_limited, run_pretraining, run_stream

RUNS: dict[str, Callable[..., Any]] = {
    "everything": run_everything, "stream": run_stream, "pretraining": run_pretraining, "finetune": run_finetune,
    "game": run_game, "limited": run_limited,
}  # fmt: skip


def dying_at(operation: int | None) -> Callable[[], int]:
    """Counts what changes the disk, and dies just before number `operation`."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for name in ("write", "rename", "ftruncate", "mkdir", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    # Only a power cut would tell whether it was done, and it is slow: here it only marks an instant to die at.
    os.fsync = counted(lambda descriptor: None)
    return lambda: count


def child(order: dict[str, Any], report: int) -> None:
    code = 1
    try:
        count = None if order["operation"] is None else dying_at(order["operation"])
        RUNS[order["what"]](Path(order["folder"]), steps=order["steps"], checkpoint_every=order["every"])
        os.write(report, str(count() if count else 0).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:  # what torch sets up at its first use, it has set up
        for name, run in RUNS.items():
            run(Path(folder) / name, steps=2)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        reading, report = os.pipe()
        process = os.fork()
        if process == 0:
            child(order, report)
        os.close(report)
        if order["after"] is not None:
            time.sleep(order["after"])
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        with os.fdopen(reading) as answer:
            operations = int(answer.read() or 0)
        died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if died else os.WEXITSTATUS(status)
        sys.stdout.write(json.dumps({"signal": died, "code": code, "operations": operations}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
