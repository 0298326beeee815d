"""`ebar push`: a finished run, to the hub of Hugging Face.

A finished run of `ebar train`, `ebar pretrain` or `ebar game`, to a repository of the hub of Hugging Face:
configuration, tokeniser, results, curves and checkpoints. Data and paths of this machine stay here. Log in first with
`hf auth login`.

Example:
    ebar push runs/mine me/mine
    ebar push runs/mine me/mine --public
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.hub import push
from ebar.config.reader import Manual, argument, read

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class PushConfig:
    """What, and where to."""

    run: Path = argument()
    """Folder of a finished run."""
    repository: str = argument()
    """OWNER/NAME on the hub; made where there is none."""
    public: bool = False
    """Whether everyone may see a repository that is made now."""


def main(words: Sequence[str]) -> int:
    """Push it, and say where it is."""
    config = read(words, MANUAL, PushConfig)
    sys.stdout.write(f"{push(config.run, config.repository, private=not config.public)}\n")
    return 0
