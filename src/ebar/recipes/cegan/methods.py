"""What the calibrated energy GAN is compared with, and how a cell is played: as `ebar game train` would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebar.build.game import game_as
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import read_tree
from ebar.journeys.game.journey import Played
from ebar.recipes.recipe import Cell
from ebar.recipes.training import grouped_options

PAPER = "Dai 2019 (thesis)"
NN, VI, CONST, GAN = "EGAN-Ent-NN", "EGAN-Ent-VI", "EGAN-Const", "GAN"
FLAT = {"entropy.kind": "constant", "entropy.weight": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    GAN: {"costs.kind": "gan", "control.kind": "together", **FLAT},
    CONST: {"costs.kind": "energy", "control.kind": "gap", **FLAT},
    VI: {"costs.kind": "energy", "control.kind": "gap", "entropy.kind": "variational"},
    NN: {"costs.kind": "energy", "control.kind": "gap", "entropy.kind": "neighbours"},
}


def cell_of(settings: Mapping[str, Any], method: str, **labels: Any) -> Cell:
    """Settings as options of `ebar game train`, those of a method before them, and what a run is called by.

    `neighbours.`, `variational.`, `gap.` and `energy.` are options of one entropy, one control, one cost: they are left
    out where the method has another. `measures.` is what is measured of a run.
    """
    own = {**METHODS[method]}
    used = {own["entropy.kind"]: "entropy", own["control.kind"]: "control", own["costs.kind"]: "costs"}
    single, groups = grouped_options({**settings, **own})
    for kind in ("neighbours", "variational", "gap", "energy"):
        options = groups.pop(kind, {})
        if kind in used:
            groups[used[kind]] |= options
    measures = groups.pop("measures", {})
    return {**labels, "method": method, "configuration": {**single, **groups}, "measures": measures}


def played(cell: Cell, folder: Path, **data: str) -> Played:
    """What `ebar game train` makes of the cell, in the folder, from where it stands; `data` are paths of files."""
    tree = dict(cell["configuration"])
    tree["data"] = {**tree.get("data", {}), **data}
    return game_as(read_tree({"seed": cell["seed"], **tree}, MANUAL, GameConfig), folder / "run")
