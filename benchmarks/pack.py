"""A text larger than memory, tokenised and packed by two processes: how fast, and in how much memory.

    python benchmarks/pack.py --megabytes 1000 --json

The text is the novels in EBAR_DATA, repeated with noise (one letter in a hundred is another one) until it is as large
as is asked for. Its tokeniser is made from its first 20 megabytes. `ebar pack` is killed after about half of the text,
called again, and compared with a call that nothing has interrupted.

- `megabytes_per_second`: of text, of the call that was not interrupted.
- `resident_megabytes`: the largest sum over all its processes, looked at ten times a second.
- `same`: both give the same files.
"""

import argparse
import hashlib
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST = 20 * 10**6  # bytes that the tokeniser is made from


def make_text(path: Path, size: int) -> None:
    """Novels again and again, each time with other noise."""
    folder = Path(os.environ["EBAR_DATA"]) / "gutenberg-novels"
    novels = "\n".join(lzma.decompress(file.read_bytes()).decode() for file in sorted(folder.glob("*.txt.xz")))
    noise = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            letters = list(novels)
            for place in noise.sample(range(len(letters)), len(letters) // 100):
                if letters[place].isalpha():
                    letters[place] = noise.choice(LETTERS)
            file.write("".join(letters))
    with path.open("r+b") as raw:
        raw.truncate(size)
        raw.seek(max(0, size - 8))
        tail = raw.read().decode(errors="ignore").encode()  # not in the middle of a character
        raw.seek(max(0, size - 8))
        raw.write(tail)
        raw.truncate()


def resident(process: int) -> int:
    """Bytes of a process and all below it; pages that they share count once for each."""
    total, rest = 0, [process]
    while rest:
        one = rest.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{one}/task").iterdir():
                rest += map(int, (task / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue
    return total


def pack(text: Path, cache: Path, tokeniser: Path, *, kill_at: int | None = None) -> tuple[float, int]:
    """Seconds, and the most memory."""
    words = [sys.executable, "-m", "ebar.cli", "pack", "--data.train", str(text), "--data.cache", str(cache)]
    words += ["--data.tokeniser_file", str(tokeniser), "--backend", "joblib", "--workers", "2", "--json"]
    begun, most = time.perf_counter(), 0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, resident(process.pid))
        written = sum(path.stat().st_size for path in cache.glob("*/tokens.bin"))
        if kill_at is not None and written >= kill_at:
            process.kill()
            process.wait()
            return time.perf_counter() - begun, most
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"ebar pack ended with {process.returncode}")
    return time.perf_counter() - begun, most


def digest(cache: Path) -> str:
    """Of the tokens."""
    [path] = cache.glob("*/tokens.bin")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--prepare", action="store_true", help="nothing to prepare")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="for text and tokens: twice the size of the text must fit")
    options = parser.parse_args()
    if options.prepare:
        return
    from ebar.data.pieces import Bpe

    size = options.megabytes * 10**6
    with TemporaryDirectory(dir=options.folder) as name:
        place = Path(name)
        text, tokeniser = place / "text.txt", place / "tokeniser.json"
        make_text(text, size)
        with text.open(encoding="utf-8") as file:
            tokeniser.write_text(Bpe.train(file.read(min(size, FIRST)).splitlines(keepends=True), 8000).to_json())
        seconds, most = pack(text, place / "whole", tokeniser)
        wanted = digest(place / "whole")
        half = next((place / "whole").glob("*/tokens.bin")).stat().st_size // 2
        shutil.rmtree(place / "whole")
        pack(text, place / "killed", tokeniser, kill_at=half)
        _, again = pack(text, place / "killed", tokeniser)
        figures = {
            "megabytes": options.megabytes,
            "megabytes_per_second": options.megabytes / seconds,
            "resident_megabytes": max(most, again) / 1e6,
            "same": digest(place / "killed") == wanted,
        }
    if options.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:25} {value}")


if __name__ == "__main__":
    main()
