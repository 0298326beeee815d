"""`make release-test`: what a new user meets, from nothing.

A clean clone is built into a wheel and a source archive; the wheel is installed into an empty environment with the
constraints, where `ebar doctor`, `ebar language` and the README's first lines run; then the ten journeys of
docs/journeys.md.
`--keep FOLDER` keeps the environment and takes it up again.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from tools.journeys import run_journeys

ROOT = Path(__file__).parent.parent

EXTRAS = "report,hf,metrics"  # what the README's lines and the journeys use
SEQUENCES = """
import random
from pathlib import Path
coin = random.Random(1)
ends = ["".join(coin.choices("01", k=3)) for _ in range(200)]
Path("sequences.txt").write_text("".join(f"{one}010101{two}\\n" for one, two in zip(ends[::2], ends[1::2])))
"""


def shown(words: list[str], folder: Path, *, quiet: bool = False) -> None:
    """A command with its seconds; one that fails ends everything."""
    sys.stdout.write(f"$ {' '.join(words)[:200]}\n")
    sys.stdout.flush()
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    sys.stdout.write(done.stdout if not quiet or done.returncode else "")
    sys.stdout.write(f"{done.stderr if done.returncode else ''}[{time.monotonic() - began:.1f} s]\n")
    if done.returncode:
        sys.exit(f"failed: {' '.join(words)[:200]}")


def built(home: Path) -> Path:
    """The wheel of a clean clone, with what must be in it and in the source archive."""
    clone = home / "clone"
    shown(["git", "clone", "--quiet", str(ROOT), str(clone)], home)
    shown([sys.executable, "-m", "venv", str(home / "builder")], home)
    python = str(home / "builder" / "bin" / "python")
    shown([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "build"], home)
    shown([python, "-m", "build", "--outdir", str(home / "dist"), str(clone)], home, quiet=True)
    (wheel,) = (home / "dist").glob("*.whl")
    (archive,) = (home / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    wanted = {"ebar/py.typed", "ebar/__init__.pyi"}
    if not wanted <= names or [name for name in names if name.startswith(("tests/", "tools/", "docs/"))]:
        sys.exit("The wheel lacks py.typed or the public names, or has more than the package.")
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    if lacks := {"src/ebar/py.typed", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"} - inside:
        sys.exit(f"The source archive lacks {', '.join(sorted(lacks))}.")
    return wheel


def first_lines() -> str:
    """The README's Python, after a file of sequences as a reader would have it."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    return SEQUENCES + found[1]


def main() -> int:
    """Everything, one after the other; what fails is named at the end."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keep", type=Path, help="a folder for the environment, kept")
    options.add_argument("--size", choices=["small", "real"], default="small")
    given = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ebar-release-") as place:
        home = Path(place)
        wheel = built(home)
        venv = given.keep or home / "empty"
        if not (venv / "bin" / "ebar").exists():
            shown([sys.executable, "-m", "venv", str(venv)], home)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        pip += ["-c", str(ROOT / "constraints.txt")]
        shown([*pip, "--force-reinstall", "--no-deps", str(wheel)], home)
        shown([*pip, str(wheel)], home)
        ebar = str(venv / "bin" / "ebar")
        shown([ebar, "doctor"], home)
        shown([ebar, "language", "--motif", "10001011111000", "--length", "30"], home)
        shown([*pip, f"{wheel}[{EXTRAS}]"], home)
        shown([str(venv / "bin" / "python"), "-c", first_lines()], home)
        failed = run_journeys(venv / "bin", given.size)
    sys.stdout.write(f"{time.monotonic() - began:7.1f} s  in all\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
