"""`ebar pull`: a run that `ebar push` put on the hub of Hugging Face.

A run that `ebar push` put on the hub of Hugging Face, into a new folder that all commands take. Only weights and plain
data are fetched: no code, no pickles. Files that the run read are not on the hub; they are looked for by their names.

Example:
    ebar pull me/mine --name mine
    ebar pull me/mine --name mine --data ~/corpora
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.hub import pull
from ebar.cli.folder import run_folder
from ebar.config.reader import Manual, argument, read

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class PullConfig:
    """What, and where to."""

    repository: str = argument()
    """OWNER/NAME on the hub."""
    name: str | None = None
    """Of the run, whose folder is RUNS/NAME; by default that of the repository."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    data: Path = Path()
    """Folder with the files that the run read; by default this one."""
    revision: str | None = None
    """A branch, tag or commit; by default the newest."""


def main(words: Sequence[str]) -> int:
    """Fetch it, and say what is missing."""
    config = read(words, MANUAL, PullConfig)
    folder = run_folder(config.runs, config.name or config.repository.rpartition("/")[2])
    done = pull(config.repository, folder, data=config.data, revision=config.revision)
    for name in done.missing:
        sys.stderr.write(f"ebar: warning: the run reads {name}, which is not in {config.data.resolve()}.\n")
    sys.stdout.write(f"{done.folder}\n")
    return 0
