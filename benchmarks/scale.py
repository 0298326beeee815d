"""Shards on several workers: how much faster two are than one, what Ray costs beside joblib, whether all agree.

    python benchmarks/scale.py --json
    python benchmarks/scale.py --check --json

Draws of an LSTM of random weights (2 layers of 128, texts of 60 tokens), in shards of about `--seconds` each on one
thread. Workers are started and have drawn once before the clock runs. The two sides take turns, and figures are the
medians of `--rounds` turns.

- `draws`: draws per second of two workers of one thread each, divided by those of one worker (joblib).
- `ray_overhead`: the time of `--shards` shards on Ray with two workers, divided by that on joblib with two.
- `same` (with --check): distilling, negatives and estimates give the same bytes here, and on joblib and Ray with 1, 2
  and 4 workers, also where a worker is killed in the middle, and where the driver is killed and called again.
"""

import argparse
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Generator

import ebar
from ebar.journeys.residual.negatives import draw_negatives
from ebar.models.tilted import propose
from ebar.shards import Workers, shard_seed
from ebar.shards.running import open_pool, spread
from ebar.shards.workers import on_threads
from ebar.store.writing import to_json
from ebar.training.distillation import distil

ROWS = 200  # draws at a time


def model() -> Any:
    """Random weights suffice: a draw costs what it costs."""
    torch.manual_seed(0)
    data = ebar.language(motif="10001011111000", length=59, size=20)
    return ebar.lstm(data, hidden=128, layers=2)


def drawn(common: tuple[Any, int], job: int) -> bytes:
    """Some batches of draws."""
    q, batches = common
    generator = Generator().manual_seed(shard_seed(0, job))
    digest = hashlib.sha256()
    for _ in range(batches):
        x, _ = propose(q, ROWS, None, generator)
        digest.update(x.tokens.numpy().tobytes())
    return digest.digest()


def batches_of(q: Any, seconds: float) -> int:
    """As many as take that long on one thread."""
    with on_threads(1):
        drawn((q, 1), 0)
        begun = time.perf_counter()
        drawn((q, 2), 0)
        return max(1, round(2 * seconds / (time.perf_counter() - begun)))


@contextmanager
def ready(common: Any, backend: Any, number: int) -> Any:
    """A pool whose workers have all drawn once."""
    with open_pool(drawn, common, Workers(backend=backend, workers=number)) as pool:
        list(spread(pool, range(2 * number)))
        yield pool


def timed(pool: Any, shards: int) -> float:
    """Seconds for so many shards."""
    begun = time.perf_counter()
    list(spread(pool, range(shards)))
    return time.perf_counter() - begun


def measure(seconds: float, shards: int, rounds: int) -> dict[str, float]:
    """Both figures, sides alternated."""
    q = model()
    common = (q, batches_of(q, seconds))
    found: dict[str, list[float]] = {"draws": [], "ray_overhead": []}
    with ready(common, "joblib", 1) as one, ready(common, "joblib", 2) as two:
        for _ in range(rounds):
            found["draws"].append(timed(one, shards) / timed(two, shards))
    with ready(common, "joblib", 2) as two, ready(common, "ray", 2) as rays:
        for _ in range(rounds):
            ours = timed(two, shards)
            found["ray_overhead"].append(timed(rays, shards) / ours)
    return {name: statistics.median(values) for name, values in found.items()} | {"batches": common[1]}


class Spelling:
    """Decodes; and kills its process once, where it is given a flag to leave behind."""

    def __init__(self, flag: Path | None):
        self.flag, self.driver, self.lines = flag, os.getpid(), 0

    def __call__(self, tokens: list[int]) -> str:
        self.lines += 1
        if self.flag is not None and self.lines == 150 and os.getpid() != self.driver and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "".join("01"[token] for token in tokens)


def target() -> Any:
    """The model, tilted by a short motif."""
    q = model()
    absent = ebar.Motif(motif="0110", alphabet="01", end=q.space.end, absent=True)
    return ebar.Tilted(q, ebar.Linear(ebar.Features([absent]), torch.tensor([-2.0])))


def lines(folder: Path, workers: Workers, flag: Path | None = None) -> bytes:
    """Distilled."""
    path = folder / "lines"
    distil(target(), 1000, path, decode=Spelling(flag), seed=5, round_size=100, look_ahead=False, workers=workers)
    return path.read_bytes()


def negatives(folder: Path, workers: Workers) -> bytes:
    """Drawn."""
    draw_negatives(folder, model(), None, 2, rows=500, seed=3, at_once=100, workers=workers)
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


def estimates(folder: Path, workers: Workers) -> bytes:
    """Figures and shards."""
    generator = Generator().manual_seed(7)
    figures = ebar.estimate(target(), 1000, shard_size=100, generator=generator, folder=folder, workers=workers)
    return to_json(figures) + b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


KINDS: dict[str, Any] = {"lines": lines, "negatives": negatives, "estimates": estimates}


def driver_killed(kind: str, folder: Path, backend: str) -> bytes:
    """By another process, which is killed as soon as something of it is on the disk."""
    words = [sys.executable, __file__, "--drive", kind, "--folder", str(folder), "--backend", backend]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while process.poll() is None and not _begun(folder):
        time.sleep(0.02)
    process.kill()
    process.wait()
    return bytes(KINDS[kind](folder, Workers(backend=backend, workers=2)))  # type: ignore[arg-type]


def _begun(folder: Path) -> bool:
    path = folder / "lines"
    return len(list(folder.glob("part-*"))) > 2 or (path.exists() and path.stat().st_size > 0)


def check() -> dict[str, Any]:
    """Every way to have the same bytes."""
    differing = []
    with TemporaryDirectory() as name:
        place = Path(name)
        for kind, make in KINDS.items():
            wanted = make(place / kind / "here", Workers())
            ways: dict[str, bytes] = {}
            for backend in ("joblib", "ray"):
                for number in (1, 2, 4):
                    how = f"{backend}-{number}"
                    ways[how] = make(place / kind / how, Workers(backend=backend, workers=number))
                ways[f"{backend}, driver killed"] = driver_killed(kind, place / kind / f"{backend}-k", backend)
                if kind == "lines":
                    workers = Workers(backend=backend, workers=2)
                    killed = lines(place / kind / f"{backend}-w", workers, place / f"{backend}-flag")
                    ways[f"{backend}, worker killed"] = killed if (place / f"{backend}-flag").exists() else b""
            differing += [f"{kind}: {how}" for how, found in ways.items() if found != wanted]
    return {"same": not differing, "differing": differing}


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--prepare", action="store_true", help="nothing to prepare")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a shard")
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="the same bytes from all backends")
    parser.add_argument("--drive", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--backend", default="joblib", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        return
    if options.drive:
        KINDS[options.drive](options.folder, Workers(backend=options.backend, workers=2))
        return
    figures = check() if options.check else measure(options.seconds, options.shards, options.rounds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
