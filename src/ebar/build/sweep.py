"""From the configuration of a sweep to its trials, which are runs of `ebar train`, and the journey with them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ebar.build.train import train_as
from ebar.config.reader import read_tree, to_yaml
from ebar.config.sentences import yaml_sentence
from ebar.config.sweep import SweepConfig, with_values
from ebar.config.train import MANUAL, TrainConfig
from ebar.errors import UserError
from ebar.journeys.sweep.journey import sweep
from ebar.journeys.sweep.report import write_sweep_page
from ebar.journeys.sweep.trials import Swept, Value
from ebar.shards import Workers
from ebar.store.differences import renamed
from ebar.store.store import open_store
from ebar.training.metrics import Sink
from ebar.training.train import Result


@dataclass(frozen=True)
class Trials:
    """Configurations of trials: that of the sweep, with the values tried."""

    tree: dict[str, Any]  # as the file has it: an option of one backbone need not be one of another

    def __call__(self, values: Mapping[str, Value]) -> TrainConfig:
        """With paths that hold in any folder: a trial may be run elsewhere."""
        config = read_tree(with_values(self.tree, values), MANUAL, TrainConfig)
        return read_tree(yaml.safe_load(to_yaml(config)), MANUAL, TrainConfig)


def make_sweep(config: SweepConfig, folder: Path, *, workers: Workers = Workers()) -> tuple[Swept, str]:  # noqa: B008
    """All that `ebar sweep` does, in a folder, from where it stands; and the command that runs the best again."""
    search, trials = config.search(), Trials(_tree(config.run))
    whole = trials({})
    for name, dimension in search.over.items():  # what cannot be tried is said before anything is
        for value in dimension.examples:
            trials({name: value})
    description = {
        "run": yaml.safe_load(to_yaml(whole)), "over": {name: repr(one) for name, one in search.over.items()},
        "seed": config.seed, "startup": config.startup, "factor": config.factor, "least": config.least,
        **workers.description,
    }  # fmt: skip
    with open_store(folder, description=description, seed=config.seed) as store:
        found = sweep(run_trial, trials, search, config.trials, store, workers=workers)
        command = best_command(config.run, found)
        write_sweep_page(found, search, command)
    return found, command


def run_trial(config: TrainConfig, folder: Path, sinks: Sequence[Sink]) -> Result:
    """One trial, as `ebar train` runs it."""
    result = train_as(config, folder, sinks=sinks).result
    assert result is not None
    return result


def best_command(run: Path, found: Swept) -> str:
    """What makes a run like the best one; empty where there is none."""
    if found.best is None:
        return ""
    flags = [word for name, value in found.best.values.items() for word in (f"--{name}", str(value))]
    return shlex.join(["ebar", "train", "--config", str(run), *flags, "--name", "best"])


def _tree(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(renamed(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(yaml_sentence(str(path), error)) from None
    if found is not None and not isinstance(found, dict):
        raise UserError(f"The configuration {path} must be a group of options, not {str(found)[:40]!r}.")
    return found or {}
