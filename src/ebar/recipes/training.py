"""Runs whose settings are options of `ebar train`: a cell is a configuration, and is trained as the command would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebar.build.train import train_as
from ebar.config.reader import read_tree
from ebar.config.train import MANUAL, TrainConfig
from ebar.journeys.train import Trained
from ebar.models.construction import Autoregressive
from ebar.recipes.grid import PARTS, Grid, cell_file
from ebar.recipes.recipe import Cell

Groups = dict[str, dict[str, Any]]
SAME_TEXT = (
    "All seeds are trained and tested on the same text: an interval over seeds alone holds the error of training and "
    "not that of which text was tested."
)


def training_grid(common: Mapping[str, Any], axes: Mapping[str, Any], **more: Any) -> Grid:
    """Runs whose settings are options of `ebar train`, by the names that they have on the command line.

    `measures.` is what is measured of a run. What has no dot in its name is what a run is called by in tables.
    """
    return Grid(common=common, axes=axes, make=_cell, **more)


def _cell(settings: dict[str, Any]) -> Cell:
    labels, groups = grouped_options(settings)
    measures = groups.pop("measures", {})
    return {**labels, "configuration": {"seed": labels["seed"], **groups}, "measures": measures}


def grouped_options(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Groups]:
    """What has no dot in its name, and the options by the group that stands before the dot."""
    labels: dict[str, Any] = {}
    groups: Groups = {}
    for key, value in settings.items():
        group, _, option = key.partition(".")
        (groups.setdefault(group, {}) if option else labels)[option or key] = value
    return labels, groups


def configuration(tree: Mapping[str, Any], folder: Path, **other: Any) -> TrainConfig:
    """As `ebar train --config` reads it; files are looked for below EBAR_DATA, those of toy/ are made in the folder."""
    return read_tree({**tree, "data": with_files(tree["data"], folder), **other}, MANUAL, TrainConfig)


def with_files(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Options of data, their files as paths."""
    files = {key for key in data if key.removesuffix("_target") in PARTS}
    return {key: cell_file(value, folder) if key in files else value for key, value in data.items()}


def trained(cell: Cell, folder: Path) -> Trained[Autoregressive]:
    """What `ebar train` makes of the cell, in the folder, from where it stands."""
    return train_as(configuration(cell["configuration"], folder), folder / "run")
