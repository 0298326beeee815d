"""`ebar list`: the runs of a folder, each in a line.

The runs of a folder, each in a line: which command made it, of what data, which step it is at, its best figure and what
that is, and whether it is finished. Nothing is opened or changed. A folder that is no run, or a damaged one, has a line
that says so.

Example:
    ebar list
    ebar list elsewhere/runs --json
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.summaries import RunSummary, list_runs
from ebar.cli.show import show_json, show_table
from ebar.config.reader import Answer, Manual, argument, read

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ListConfig(Answer):
    """Which runs."""

    folder: Path = argument(Path("runs"))
    """Folder of all runs."""


def main(words: Sequence[str]) -> int:
    """Print them."""
    config = read(words, MANUAL, ListConfig)
    found = list_runs(config.folder)
    if config.json:
        show_json([as_plain(run) for run in found])
    elif not found:
        sys.stdout.write(f"{config.folder} is empty: `ebar train --name NAME` makes a run in it\n")
    else:
        rows = [
            (run.folder.name, run.kind, run.data, run.model, "–" if run.step is None else run.step,
             run.figure or run.problem, run.state)
            for run in found
        ]  # fmt: skip
        header = ("run", "kind", "data", "model", "step", "best figure", "state")
        show_table(str(config.folder), header, rows)
    return 0


def as_plain(run: RunSummary) -> dict[str, object]:
    """Of a run, without its configuration."""
    return {name: value for name, value in vars(run).items() if name != "tree"}
