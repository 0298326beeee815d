"""A pytest plugin: tests are collected once, and each mutant gets a fork of that process.

In the fork the functions that hold the change are given the changed code; everything that imported them sees it, and
nothing has to be imported again. What runs at import (constants, defaults, classes) is changed on disk by the driver,
in a copy of the tree, before the process starts. The job is a JSON file named by EBAR_MUTANTS; a line of JSON is
written for each answer as soon as it is known.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import pytest

GRACE, TIMES = 30.0, 10.0  # a test may take this many seconds and this many times what it took before


class _Failures:
    """Which phase of a test failed, if one did."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found.append(report.when or "call")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of pytest's own loop."""
    job = json.loads(Path(os.environ["EBAR_MUTANTS"]).read_text())
    items = {item.nodeid: item for item in session.items}
    with open(job["answers"], "a") as answers:
        if session.testsfailed:
            _say(answers, {"collection": "failed"})
            return True
        if job["kind"] == "map":
            _map(session, items, Path(job["source"]), answers)
            return True
        for mutant in job["mutants"]:
            tests = [(name, seconds) for name, seconds in mutant["tests"] if name in items]
            started = time.monotonic()
            outcome = _in_fork(session, items, mutant, tests, Path(job["source"]), None)
            _say(answers, {"identity": mutant["identity"], "seconds": time.monotonic() - started, **outcome})
    return True


def _map(session: pytest.Session, items: dict[str, pytest.Item], source: Path, answers: TextIO) -> None:
    """Every test once, without a mutant; one that ends the process is written down as failed, and the rest go on."""
    left = list(items)
    while left:
        outcome = _in_fork(session, items, None, [(name, 60.0) for name in left], source, answers)
        if outcome["outcome"] == "survived":
            return
        culprit = outcome["by"] or left[0]
        _say(answers, {"mapped": culprit, "seconds": 0.0, "passed": False, "calls": []})
        left = left[left.index(culprit) + 1 :]


def _say(where: TextIO, words: dict[str, Any]) -> None:
    where.write(json.dumps(words) + "\n")
    where.flush()


def _in_fork(
    session: pytest.Session,
    items: dict[str, pytest.Item],
    mutant: dict[str, Any] | None,
    tests: list[tuple[str, float]],
    source: Path,
    answers: TextIO | None,
) -> dict[str, Any]:
    """Run the tests in a fork until one fails; with no mutant, all of them, writing down which functions each calls."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        with os.fdopen(writing, "w") as out:
            try:
                if mutant is not None and mutant["function"] is not None:
                    patch(source / mutant["file"], mutant["function"], mutant["source"])
                _run(session, [items[name] for name, _ in tests], source, out, mapping=mutant is None)
            except BaseException as error:
                _say(out, {"error": f"{type(error).__name__}: {error}"})
            out.flush()
        os._exit(0)
    os.close(writing)
    try:
        return _follow(reading, dict(tests), answers)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _follow(reading: int, seconds: dict[str, float], answers: TextIO | None) -> dict[str, Any]:
    """What the fork tells, line by line; a test that takes far too long ends it."""
    rest, now, deadline = b"", None, time.monotonic() + GRACE
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return {"outcome": "killed", "by": now, "how": "time"}
        piece = os.read(reading, 65536)
        if not piece:
            return {"outcome": "killed", "by": now, "how": "crash"}
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            words = json.loads(line)
            if "test" in words:
                now = words["test"]
                deadline = time.monotonic() + GRACE + TIMES * seconds[now]
            elif "error" in words:
                return {"outcome": "error", "by": now, "how": words["error"]}
            elif "failed" in words and answers is None:
                return {"outcome": "killed", "by": now, "how": words["failed"]}
            elif "done" in words:
                return {"outcome": "survived", "by": None, "how": f"{words['done']} tests pass"}
            elif answers is not None:
                _say(answers, words)


def _run(session: pytest.Session, items: list[pytest.Item], source: Path, out: TextIO, *, mapping: bool) -> None:
    failures = _Failures()
    session.config.pluginmanager.register(failures)
    inside, called = str(source), set[CodeType]()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        called.add(frame.f_code)

    for item, following in zip(items, [*items[1:], None], strict=True):
        _say(out, {"test": item.nodeid})
        started = time.monotonic()
        if mapping:
            called.clear()
            sys.settrace(trace)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if mapping:
            sys.settrace(None)
            codes = (code for code in called if code.co_filename.startswith(inside))
            names = {f"{code.co_filename[len(inside) + 1 :]}:{code.co_qualname.split('.<')[0]}" for code in codes}
            passed = not failures.found
            _say(
                out,
                {
                    "mapped": item.nodeid,
                    "seconds": time.monotonic() - started,
                    "passed": passed,
                    "calls": sorted(names),
                },
            )
            failures.found.clear()
        elif failures.found:
            _say(out, {"failed": failures.found[0]})
            return
    _say(out, {"done": len(items)})


def patch(path: Path, function: str, source: str) -> None:
    """Give every function object of that name in that file its code in the changed source."""
    codes = [code for code in _codes(compile(source, str(path), "exec")) if code.co_qualname == function]
    if len(codes) != 1:
        raise LookupError(f"{function} is there {len(codes)} times")
    below = path.parts[len(path.parts) - path.parts[::-1].index("ebar") - 1 :]
    importlib.import_module(".".join(below).removesuffix(".py").removesuffix(".__init__"))
    found = 0
    for thing in gc.get_objects():
        # Not isinstance: some libraries' lazy objects would be imported by being asked.
        if type(thing) is FunctionType and _place(thing.__code__) == (str(path), function):
            thing.__code__ = codes[0]
            found += 1
    if not found:
        raise LookupError(f"{function} was never imported")


def _place(code: CodeType) -> tuple[str, str]:
    return code.co_filename, code.co_qualname


def _codes(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*inner, *(deeper for each in inner for deeper in _codes(each))]
