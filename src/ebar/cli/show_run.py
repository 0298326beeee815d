"""`ebar show`: what a run is, how it went, and what can be done with it next.

What a run is, how it went, and what can be done with it next, as commands that run as they stand. The curves of its
trainings, its figures and its configuration are written to `overview.html` in its folder, a page that needs no other
file.

Example:
    ebar show runs/motif
    ebar show runs/motif --json
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.next_commands import maker, next_commands, next_lines
from ebar.build.overview import write_overview
from ebar.build.summaries import readable_run
from ebar.cli.list_runs import as_plain
from ebar.cli.show import show_json
from ebar.config.reader import Answer, Manual, argument, read

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ShowConfig(Answer):
    """Which run."""

    run: Path = argument()
    """Folder of a run, of whatever command."""


def main(words: Sequence[str]) -> int:
    """Print it, and write the page."""
    config = read(words, MANUAL, ShowConfig)
    run = readable_run(config.run, "shown")
    after, page = next_commands(run), write_overview(run)
    if config.json:
        show_json({**as_plain(run), "page": str(page), "next": after})
        return 0
    known = {
        "made by": f"ebar {maker(run)}", "data": run.data, "model": run.model, "step": run.step, "best": run.figure,
        "state": run.state, "page": page,
    }  # fmt: skip
    if run.kind == "made in Python":
        known["made by"] = "Python: the same call with folder= opens it, or goes on with it"
    lines = [f"{name + ':':<9} {value}" for name, value in known.items() if value not in ("", None)]
    lines += ["", *next_lines(run)] if after else []
    sys.stdout.write("\n".join([str(config.run), *lines, ""]))
    return 0
