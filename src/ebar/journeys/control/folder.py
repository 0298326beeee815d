"""Whether a folder that was begun may be had by another configuration."""

from pathlib import Path

from ebar.store.differences import another_configuration
from ebar.store.environment import environment
from ebar.store.writing import to_json
from ebar.training.run import Run

# What a run has that was told of a mistake before it had found anything.
BEGUN = {"config.yaml", "environment.json", "lock", "checkpoints"}


def another(folder: Path, config: str) -> bool:
    """Whether the folder holds another configuration; one that has come to anything is not given up."""
    path = folder / "config.yaml"
    other = path.exists() and path.read_text(encoding="utf-8") != config
    if other and (not {entry.name for entry in folder.iterdir()} <= BEGUN or any((folder / "checkpoints").iterdir())):
        raise another_configuration(folder, config, f"choose another --name, or delete {folder}")
    return other


def take_over(run: Run, seed: int) -> None:
    """What was noted of the other configuration's start is no longer true."""
    run.write("environment.json", to_json(environment(seed), indent=1))
