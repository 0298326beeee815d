"""Mutants of the code that computes numbers, and whether a test notices them.

    make mutants                                        # everything, as recorded in docs/results/mutants.json
    python benchmarks/mutants.py --chosen               # those of benchmarks/mutants.toml only
    python benchmarks/mutants.py --random 110 --seed 12 # those drawn by lot only
    python benchmarks/mutants.py --only survivors       # once more those that survived, with the tests of today

Which tests call which function is learnt first (once; test files that changed are read again) and kept in
`.cache/mutants`. A mutant is then given to the tests that call its function, the quickest first, until one fails; those
past `--budget` seconds are left out, and counted. It is killed by a test that fails, crashes, or takes longer than
30 s + 10 times what it took without the mutant. Tests run in a copy of the tree, with one thread, and with Hypothesis
always generating the same cases. What was found is kept as it is found: an interrupted run goes on where it was.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mutants_draw import FOLDERS, Mutant, chosen, drawn, equivalents, with_tools

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benchmarks" / "mutants.toml"
CACHE = ROOT / ".cache" / "mutants"
# Tests of whole commands and recipes take minutes and check few numbers; the others are of parts that are not mutated.
LEFT_OUT = ("cli", "journeys", "recipes", "report", "build", "config", "automata", "features", "models", "energies",
            "data", "backbones", "training/test_")  # fmt: skip
Found = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Draw, run, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chosen", action="store_true", help="the mutants of the table")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="this many drawn by lot")
    parser.add_argument("--seed", type=int, default=12, help="of the lot")
    parser.add_argument(
        "--only",
        choices=["survivors", "nothing"],
        help="run survivors without an argument and new ones; or just record",
    )
    parser.add_argument("--file", help="only mutants of files whose name contains this")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of tests for one mutant")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--remap", action="store_true", help="learn again which tests call which functions")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument(
        "--on-disk", action="store_true", help="change every mutant on disk: slower, a check of the tool"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--record", type=Path, help="where to write the result as JSON")
    options = parser.parse_args(argv)
    CACHE.mkdir(parents=True, exist_ok=True)
    with_tools(CACHE / "tools")
    begun = time.monotonic()
    mutants, stale = chosen(ROOT, TABLE) if options.chosen else ([], [])
    mutants += drawn(ROOT, options.random, options.seed)
    mutants = list({mutant.identity: mutant for mutant in mutants if (options.file or "") in mutant.file}.values())
    for complaint in stale:
        print(complaint, file=sys.stderr)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.identity} {_shown(mutant)}\n    {mutant.why}")
        return bool(stale)
    before = {} if options.again else _results(CACHE / "results.jsonl")
    digest = _digest()
    todo = [mutant for mutant in mutants if before.get(mutant.identity, {}).get("digest") != digest]
    if options.only:
        argued = equivalents(TABLE)
        todo = [m for m in mutants if _open(before.get(m.identity), (m.file, m.before, m.after) in argued)]
    if options.only == "nothing":
        todo, mutants = [], [mutant for mutant in mutants if mutant.identity in before]
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        trees = [_copy(Path(folder) / str(number)) for number in range(options.workers)]
        calls = _map(trees, options.remap) if todo else {}
        plans = [_plan(mutant, calls, before.get(mutant.identity), options) for mutant in todo]
        _run(plans, trees, digest)
    found = _results(CACHE / "results.jsonl")
    return _conclude(mutants, stale, found, options, time.monotonic() - begun)


def _open(before: Found | None, argued: bool) -> bool:
    """Whether a mutant is new, or survived without an argument."""
    return before is None or (before["outcome"] != "killed" and not argued)


def _shown(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.line} {mutant.function or '(import)'}\n    - {mutant.before}\n    + {mutant.after}"


def _results(path: Path) -> dict[str, Found]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {entry["identity"]: entry for entry in map(json.loads, lines)}


def _digest() -> str:
    """Of all that decides an outcome."""
    paths = sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in paths)).hexdigest()[:12]


def _copy(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def _test_files() -> list[str]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [str(path.relative_to(ROOT / "tests")) for path in paths]
    return [f"tests/{name}" for name in names if "/" in name and not name.startswith(LEFT_OUT)]


def _pytest(tree: Path, job: Found, files: Iterable[str]) -> list[Found]:
    """One pytest process with our plugin; its answers."""
    number = time.monotonic_ns()
    description, answers = tree.parent / f"{number}.job", tree.parent / f"{number}.answers"
    description.write_text(json.dumps({**job, "source": str(tree / "src" / "ebar"), "answers": str(answers)}))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT / "benchmarks"))),
        "EBAR_MUTANTS": str(description),
        "CI": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "mutants_pytest", "-p", "no:cacheprovider", "-q", "-s", *files]
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if not answers.exists():
        raise RuntimeError(f"pytest could not begin:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return [json.loads(line) for line in answers.read_text().splitlines()]


def _map(trees: list[Path], again: bool) -> dict[str, Found]:
    """For each test its seconds and the functions it calls."""
    path = CACHE / "map.json"
    known = json.loads(path.read_text()) if path.exists() and not again else {}
    digests = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:12] for name in _test_files()}
    known = {name: entry for name, entry in known.items() if digests.get(name) == entry["digest"]}
    new = [name for name in digests if name not in known]
    if new:
        print(f"learning what {len(new)} test files call", file=sys.stderr)
        with ThreadPoolExecutor(len(trees)) as pool:
            shares = [new[number :: len(trees)] for number in range(len(trees))]
            parts = pool.map(_pytest, trees, [{"kind": "map"}] * len(trees), shares)
            answers = [answer for part in parts for answer in part]
        if any("mapped" not in answer for answer in answers):
            raise RuntimeError("The tests cannot be collected: run pytest first.")
        for name in new:
            known[name] = {"digest": digests[name], "tests": {}}
        for answer in answers:
            known[answer["mapped"].split("::")[0]]["tests"][answer["mapped"]] = answer
        path.write_text(json.dumps(known))
    tests = {test: answer for entry in known.values() for test, answer in entry["tests"].items()}
    for test, answer in tests.items():
        if not answer["passed"]:
            print(f"FAILS WITHOUT ANY MUTANT, left out: {test}", file=sys.stderr)
    return {test: answer for test, answer in tests.items() if answer["passed"]}


def _plan(mutant: Mutant, calls: dict[str, Found], before: Found | None, options: argparse.Namespace) -> Found:
    """The tests a mutant is given to: what killed it last first, then the quickest of those that call its function."""
    name = f"{mutant.file}:{mutant.function}"
    covering = [test for test, answer in calls.items() if name in answer["calls"]]
    if not covering:  # what runs at import: whatever calls or names the file, or one that imports from it
        module = "ebar." + mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        paths = (ROOT / "src" / "ebar").rglob("*.py")
        users = {
            str(path.relative_to(ROOT / "src" / "ebar")) for path in paths if f"from {module} " in path.read_text()
        }
        users.add(mutant.file)
        naming = {name for name in _test_files() if f"from {module} import" in (ROOT / name).read_text()}
        own = {t for t in calls if any(call.startswith(mutant.file + ":") for call in calls[t]["calls"])}
        own |= {t for t in calls if t.split("::")[0] in naming}
        others = {t for t, answer in calls.items() if any(call.split(":")[0] in users for call in answer["calls"])}
        covering = [*own | others]
        covering.sort(key=lambda test: (test not in own, calls[test]["seconds"]))
    else:
        covering.sort(key=lambda test: calls[test]["seconds"])
    killer = before and before.get("by")
    covering.sort(key=lambda test: test != killer)
    tests: list[tuple[str, float]] = []
    spent = 0.0
    for test in covering:
        spent += calls[test]["seconds"]
        if spent <= options.budget or not tests:
            tests.append((test, calls[test]["seconds"]))
    return {
        **{key: getattr(mutant, key) for key in ("identity", "file", "source")},
        "function": None if options.on_disk else mutant.function,
        "tests": tests,
        "left_out": len(covering) - len(tests),
    }


def _run(plans: list[Found], trees: list[Path], digest: str) -> None:
    """Answers are appended to the results as they come."""
    with open(CACHE / "results.jsonl", "a") as results, ThreadPoolExecutor(len(trees)) as pool:

        def note(plan: Found, answer: Found) -> None:
            kept = {key: answer[key] for key in ("outcome", "by", "how", "seconds")}
            line = {"identity": plan["identity"], **kept, "left_out": plan["left_out"], "digest": digest}
            results.write(json.dumps(line) + "\n")
            results.flush()
            print(
                f"{answer['outcome']:9} {answer['seconds']:6.1f} s  {plan['file']}  {answer['by'] or answer['how']}",
                flush=True,
            )

        def work(tree: Path, share: list[Found]) -> None:
            quick = [plan for plan in share if plan["function"] is not None and plan["tests"]]
            for begin in range(0, len(quick), 12):
                some = quick[begin : begin + 12]
                files = sorted({test.split("::")[0] for plan in some for test, _ in plan["tests"]})
                plain = {plan["identity"]: plan for plan in some}
                for answer in _pytest(tree, {"kind": "run", "mutants": some}, files):
                    if answer.get("outcome") == "error":
                        print(f"on disk instead: {answer['how']}", file=sys.stderr)
                        share.append({**plain[answer["identity"]], "function": None})
                    elif "identity" in answer:
                        note(plain[answer["identity"]], answer)
                    else:
                        raise RuntimeError("The tests cannot be collected: run pytest first.")
            for plan in (plan for plan in share if plan["function"] is None or not plan["tests"]):
                note(plan, _on_disk(tree, plan))

        list(pool.map(work, trees, [plans[number :: len(trees)] for number in range(len(trees))]))


def _on_disk(tree: Path, plan: Found) -> Found:
    """One mutant in a process of its own, from its import on."""
    if not plan["tests"]:
        return {"outcome": "survived", "by": None, "how": "no test calls it", "seconds": 0.0}
    path = tree / "src" / "ebar" / plan["file"]
    original, begun = path.read_text(), time.monotonic()
    try:
        path.write_text(plan["source"])
        files = list(dict.fromkeys(test.split("::")[0] for test, _ in plan["tests"]))
        answer = _pytest(tree, {"kind": "run", "mutants": [plan]}, files)[0]
    finally:
        path.write_text(original)
    if "identity" not in answer:
        answer = {"outcome": "killed", "by": None, "how": "import"}
    return {**answer, "seconds": time.monotonic() - begun}


def _conclude(
    mutants: list[Mutant], stale: list[str], found: dict[str, Found], options: argparse.Namespace, seconds: float
) -> int:
    """The survivors with their arguments, and the record."""
    arguments, entries = equivalents(TABLE), []
    for mutant in mutants:
        answer = found[mutant.identity]
        equivalent = (
            arguments.get((mutant.file, mutant.before, mutant.after)) if answer["outcome"] != "killed" else None
        )
        keys = ("group", "file", "function", "before", "after", "why")
        entry = {
            **{key: getattr(mutant, key) for key in keys},
            **{key: answer[key] for key in ("outcome", "by", "how")},
        }
        entries.append({**entry, "seconds": round(answer["seconds"], 1), "equivalent": equivalent})
        if answer["outcome"] != "killed":
            print(f"\nSURVIVED {_shown(mutant)}\n    {mutant.why}: {answer['how']}, {answer['left_out']} left out")
            print(f"    {'equivalent: ' + equivalent if equivalent else 'NOT ARGUED'}")
    counts = {
        group: dict(Counter(entry["outcome"] for entry in entries if entry["group"] == group))
        for group in ("chosen", "random")
    }
    argued = sum(entry["equivalent"] is not None for entry in entries)
    killed = sum(entry["outcome"] == "killed" for entry in entries)
    print(f"\n{counts}: {killed} of {len(entries)} killed, {argued} survivors argued equivalent, {seconds:.0f} s")
    if options.record:
        versions = {name: version(name) for name in ("torch", "pytest", "hypothesis", "jaxtyping")}
        record = {
            "command": "python benchmarks/mutants.py " + " ".join(sys.argv[1:]),
            "seed": options.seed,
            "tool": f"operators of cosmic-ray {version('cosmic-ray')}, drawn by lot" if options.random else None,
            "folders": FOLDERS,
            "versions": {"python": platform.python_version(), **versions},
            "wall_seconds_of_this_pass": round(seconds),
            "seconds_of_all_mutants": round(sum(entry["seconds"] for entry in entries)),
            "counts": counts,
            "mutants": entries,
        }
        options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 1 if stale or killed + argued < len(entries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
