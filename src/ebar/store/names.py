"""What files and folders of a run are called, for whoever looks without opening anything: nothing heavy is imported."""

from pathlib import Path

CONFIG = "config.yaml"  # a folder that has one says by it what it was made from
LOCK = "lock"  # of a folder that is in use
CHECKPOINTS = "checkpoints"


def checkpoint_folder(folder: Path, step: int) -> Path:
    """Of a folder of checkpoints, that of one step."""
    return folder / f"step-{step:09d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that a folder of checkpoints has, readable or not, oldest first."""
    return sorted(int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdigit())
