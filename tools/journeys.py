"""The journeys of docs/journeys.md, run as a user would type them.

`python tools/journeys.py --bin .venv/bin` runs them with the ebar of that folder, in an empty folder, and prints each
command with its seconds; `--size real` leaves out what stands behind `# small:` and takes files of a real size, parts
of EBAR_DATA. Journeys 6, 7 and 10 begin from runs of 1: run them with it, or in its `--folder`.
"""

import argparse
import lzma
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "journeys.md"
SECTION = re.compile(r"^## (\d+)\. ([^\n]+)\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL = "  # small: "


class Size(NamedTuple):
    """How much is taken of files that are there, and how many strings are made."""

    characters: int | None  # of the book; None: all
    pairs: int
    digits: int
    step: int  # each so many rows and columns of a digit
    strings: int


SIZES = {
    "small": Size(characters=60_000, pairs=600, digits=1000, step=2, strings=300),
    "real": Size(characters=None, pairs=20_000, digits=10_000, step=1, strings=1000),
}
# Files that are made where EBAR_DATA has none.
MADE = """
import numpy, random
coin = random.Random(0)
words = "the a dark stormy night sea wind man woman house was and saw came over under old small".split()
with open("book.txt", "w") as file:
    for _ in range(1500):
        file.write(" ".join(coin.choices(words, k=coin.randrange(4, 10))).capitalize() + ".\\n")
nouns = {"Hund": "dog", "Mann": "man", "Tag": "day", "Wald": "wood", "Fisch": "fish"}
with open("pairs.tsv", "w") as file:
    for _ in range(300):
        one, two = coin.choice(list(nouns)), coin.choice(list(nouns))
        file.write(f"der {one} und der {two}\\tthe {nouns[one]} and the {nouns[two]}\\n")
pixels = numpy.random.default_rng(0).integers(0, 256, (200, 8, 8), dtype=numpy.uint8)
numpy.savez("digits.npz", images=pixels)
"""
DIGITS = """
import gzip, numpy, sys
raw = gzip.open(sys.argv[1]).read()
many, step = map(int, sys.argv[2:])
images = numpy.frombuffer(raw, numpy.uint8, offset=16).reshape(-1, 28, 28)[:many, ::step, ::step]
numpy.savez("digits.npz", images=images)
"""


class Journey(NamedTuple):
    """A section of the page."""

    number: int
    title: str
    commands: list[str]  # each with its lines


def journeys(size: str = "small") -> list[Journey]:
    """Those of the page, at a size."""
    found = SECTION.findall(PAGE.read_text(encoding="utf-8"))
    return [Journey(int(number), title, list(_commands(text, size))) for number, title, text in found]


def _commands(text: str, size: str) -> Sequence[str]:
    found, here = [], None
    for line in text.splitlines():
        if here is not None:  # within a document that a command reads
            found[-1] += f"\n{line}"
            here = None if line == here else here
            continue
        command, _, more = line.partition(SMALL)
        found.append(f"{command} {more}".strip() if size == "small" else command)
        if document := re.search(r"<<'(\w+)'$", line):
            here = document[1]
    return found


def write_files(folder: Path, python: str, data: Path | None, size: Size) -> None:
    """What the page begins with: parts of EBAR_DATA, or made up."""
    run = {"cwd": folder, "check": True}
    subprocess.run([python, "-c", MADE], **run)  # type: ignore[call-overload]
    (folder / "beginnings.txt").write_text("It was\nThe old\n")
    (folder / "german.txt").write_text("der Hund und der Wald\n")
    coin = random.Random(0)
    letters = ["".join(coin.choices("ACGT", k=20)) for _ in range(size.strings)]
    places = [coin.randrange(15) for _ in letters]
    lines = [f"{line[:at]}TATAAT{line[at + 6 :]}\n" for line, at in zip(letters, places, strict=True)]
    (folder / "dna.txt").write_text("".join(lines))
    if data is None:
        return
    if (novels := data / "gutenberg-novels" / "valid.txt.xz").exists():
        (folder / "book.txt").write_text(_read(novels)[: size.characters], encoding="utf-8")
    if (tatoeba := data / "tatoeba-deu-eng").exists():
        pairs, unseen = (_german_first(tatoeba / name) for name in ("train.tsv.xz", "valid.tsv.xz"))
        some = pairs[:: len(pairs) // size.pairs][: size.pairs]  # the file begins with its shortest sentences
        (folder / "pairs.tsv").write_text("".join(f"{german}\t{english}\n" for german, english in some))
        (folder / "german.txt").write_text("".join(f"{german}\n" for german, _ in unseen[500::1000]))
    if (mnist := data / "mnist" / "train-images-idx3-ubyte.gz").exists():
        words = [python, "-c", DIGITS, str(mnist), str(size.digits), str(size.step)]
        subprocess.run(words, **run)  # type: ignore[call-overload]


def _german_first(path: Path) -> list[tuple[str, str]]:
    """The pairs of a file of Tatoeba, which has English first."""
    pairs = (line.split("\t") for line in _read(path).splitlines())
    return [(german, english) for english, german in pairs]


def _read(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode("utf-8")


def run_journeys(
    programs: Path, size: str = "small", only: Sequence[int] = (), folder: Path | None = None
) -> list[str]:  # fmt: skip
    """Runs them with the `ebar` and `python` of a folder, prints a transcript, and gives the titles that failed."""
    named = os.environ.get("EBAR_DATA")
    home = Path(tempfile.mkdtemp(prefix="ebar-journeys-")) if folder is None else folder.resolve()
    home.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": f"{programs.resolve()}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    failed, spent = [], []
    try:
        write_files(home, str(programs.resolve() / "python"), None if named is None else Path(named), SIZES[size])
        for journey in journeys(size):
            if only and journey.number not in only:
                continue
            title = f"{journey.number}. {journey.title}"
            sys.stdout.write(f"\n## {title}\n")
            began, before = time.monotonic(), _processor()
            if not all(_typed(command, home, environment) for command in journey.commands):
                failed.append(title)
            gone = f"{time.monotonic() - began:7.1f} s, {_processor() - before:6.1f} s of processors"
            spent.append(f"{gone}  {title}\n")
    finally:
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write("\n" + "".join(spent))
    return failed


def _processor() -> float:
    """Seconds that commands have computed, however busy the machine is."""
    used = os.times()
    return used.children_user + used.children_system


def _typed(command: str, home: Path, environment: dict[str, str]) -> bool:
    """One command, shown with what it prints; whether it ended well."""
    sys.stdout.write(f"$ {command}\n")
    sys.stdout.flush()
    began, before = time.monotonic(), _processor()
    done = subprocess.run(
        ["bash", "-c", command], cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    sys.stdout.write(done.stdout)
    if done.returncode != 0:
        sys.stdout.write(f"exit code {done.returncode}\n")
    sys.stdout.write(f"[{time.monotonic() - began:.1f} s, {_processor() - before:.1f} s of processors]\n")
    return done.returncode == 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bin", type=Path, default=ROOT / ".venv" / "bin", help="folder of python and ebar")
    options.add_argument("--size", choices=SIZES, default="small")
    options.add_argument("--only", type=int, nargs="*", default=[], help="numbers of journeys")
    options.add_argument("--folder", type=Path, help="where to run them; it stays, with its runs")
    given = options.parse_args()
    sys.exit("\n".join(run_journeys(given.bin, given.size, given.only, given.folder)) or 0)
