"""`ebar push` and `ebar pull`: runs on the hub of Hugging Face."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build import hub
from ebar.cli.folder import run_folder
from ebar.config.reader import Manual, argument, read


@dataclass(frozen=True, kw_only=True)
class PushConfig:
    """What, and where to."""

    run: Path = argument()
    """Folder of a finished run."""
    repository: str = argument()
    """OWNER/NAME on the hub; made where there is none."""
    public: bool = False
    """Whether everyone may see a repository that is made now."""


def push(words: Sequence[str]) -> int:
    """`ebar push`: a finished run, to the hub of Hugging Face.

    A finished run of `ebar train`, `ebar pretrain` or `ebar game`, to a repository of the hub of Hugging Face:
    configuration, tokeniser, results, curves and checkpoints. Data and paths of this machine stay here. Log in first
    with `hf auth login`.

    Example:
        ebar push runs/mine me/mine
        ebar push runs/mine me/mine --public
    """
    config = read(words, Manual.of(push.__doc__), PushConfig)
    sys.stdout.write(f"{hub.push(config.run, config.repository, private=not config.public)}\n")
    return 0


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


def pull(words: Sequence[str]) -> int:
    """`ebar pull`: a run that `ebar push` put on the hub of Hugging Face.

    A run that `ebar push` put on the hub of Hugging Face, into a new folder that all commands take. Only weights and
    plain data are fetched: no code, no pickles. Files that the run read are not on the hub; they are looked for by
    their names.

    Example:
        ebar pull me/mine --name mine
        ebar pull me/mine --name mine --data ~/corpora
    """
    config = read(words, Manual.of(pull.__doc__), PullConfig)
    folder = run_folder(config.runs, config.name or config.repository.rpartition("/")[2])
    done = hub.pull(config.repository, folder, data=config.data, revision=config.revision)
    for name in done.missing:
        sys.stderr.write(f"ebar: warning: the run reads {name}, which is not in {config.data.resolve()}.\n")
    sys.stdout.write(f"{done.folder}\n")
    return 0
