"""`ebar compare`: two runs on the same test items, paired, with intervals.

What the test items cost each of two runs of `ebar train`, and the difference, paired item by item: so it is known far
better than either cost. In nats per token, of images in bits per dimension; where tokenisers differ, in bits per byte
of the same texts. Runs of different data are refused.

Example:
    ebar compare runs/lstm runs/transformer
    ebar compare runs/characters runs/bpe --json
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.runs import load_language_run
from ebar.cli.show import show_json, show_table
from ebar.config.reader import Answer, Manual, argument, read
from ebar.journeys.compare import Comparison, compare
from ebar.progress import shown

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Answer):
    """Which runs."""

    first: Path = argument()
    """Folder of a trained run."""
    second: Path = argument()
    """Folder of another."""


def main(words: Sequence[str]) -> int:
    """Print both costs and the difference."""
    config = read(words, MANUAL, CompareConfig)
    with shown(not config.json):
        found = compare(load_language_run(config.first), load_language_run(config.second))
    names = [str(config.first), str(config.second)]
    if config.json:
        better = None if found.better is None else names[found.better]
        show_json({"runs": names, **vars(found), "better": better})
        return 0
    rows = [(names[0], found.first), (names[1], found.second), ("the first minus the second, paired", found.difference)]
    show_table(f"{found.unit}, over {found.over}", ("run", found.unit), rows)
    sys.stdout.write(f"{_verdict(found, names)}\n")
    return 0


def _verdict(found: Comparison, names: Sequence[str]) -> str:
    if found.better is None:
        return "The interval of the difference holds 0: these test items do not tell which is better."
    low, high = sorted(abs(end) for end in (found.difference.low, found.difference.high))
    return (
        f"{names[found.better]} is better, by {abs(found.difference.value):.4g} [{low:.4g}, {high:.4g}] {found.unit}."
    )
