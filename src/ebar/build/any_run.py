"""Any run folder, opened as what it is."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ebar.build.classify import load_classified
from ebar.build.control import open_control
from ebar.build.finetune import load_finetuned
from ebar.build.gam import load_gam
from ebar.build.game import load_game
from ebar.build.residual import load_residual
from ebar.build.train import load_trained
from ebar.config.classify import ClassifyConfig
from ebar.config.control import ControlConfig
from ebar.config.finetune import FinetuneConfig
from ebar.config.gam import GamConfig
from ebar.config.game import GameConfig
from ebar.config.residual import ResidualConfig
from ebar.config.train import TrainConfig
from ebar.errors import UserError
from ebar.journeys.control.tuning import Tuning
from ebar.store.differences import listed_names, renamed

# What config.yaml may be, and how a run of it is opened.
OPENERS: dict[type, Callable[[Path], Any]] = {
    TrainConfig: load_trained,
    GamConfig: load_gam,
    ResidualConfig: load_residual,
    ControlConfig: open_control,
    FinetuneConfig: load_finetuned,
    ClassifyConfig: load_classified,
    GameConfig: load_game,
}


def kind_of_run(tree: Mapping[str, Any]) -> type | None:
    """The dataclass of a configuration that a folder keeps, told by the names of its options; None for others."""
    names = set(tree)
    return next((kind for kind in (*OPENERS, Tuning) if names and names <= {own.name for own in fields(kind)}), None)


def load(folder: Path | str) -> Any:
    """What a journey left in a folder: a `Trained`, a GAM, a residual, controlled or fine-tuned model, a game.

    At its best, or where nothing was held out as it was last.
    """
    folder = Path(folder)
    try:
        tree = yaml.safe_load(renamed((folder / "config.yaml").read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError):
        raise UserError(f"{folder} is no run folder: it has no config.yaml that can be read.") from None
    tree = tree if isinstance(tree, dict) else {}
    kind = kind_of_run(tree)
    if kind in OPENERS:
        return OPENERS[kind](folder)
    has = listed_names(sorted(tree)) or "no options"
    raise UserError(
        f"{folder} cannot be opened by itself, as its configuration has {has}: where it was made in Python, repeat the "
        "call with folder=, which reads back what is finished."
    )
