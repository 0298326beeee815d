"""No test's result depends on how busy the machine is."""

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
# Instants at which runs are killed are spread over the time that a whole run takes: any instant will do.
SCALED = {"training/test_killed.py"}
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


def test_generated_cases_have_no_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_no_test_reads_a_clock_or_gives_a_process_a_time_limit() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            limits = [word.arg for word in node.keywords if word.arg in {"timeout", "deadline"}]
            limits = [] if name == "conftest.py" else limits
            called = ast.unparse(node.func)
            clock = called.startswith("time.") and called.removeprefix("time.") in CLOCKS and name not in SCALED
            if limits or clock:
                found.append(f"{name}:{node.lineno}")
    assert found == []
