"""Any run folder, opened as what it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ebar.build.control import open_control
from ebar.build.finetune import load_finetuned
from ebar.build.gam import load_gam
from ebar.build.game import load_classified, load_game
from ebar.build.residual import load_residual
from ebar.build.summaries import readable_run
from ebar.build.train import load_trained
from ebar.config.kinds import kind_of_run
from ebar.errors import UserError
from ebar.journeys.train import Trained
from ebar.store.differences import listed_names, renamed
from ebar.store.names import CONFIG

# How a run is opened, by the command that makes such.
OPENERS: dict[str, Callable[[Path], Any]] = {
    "train": load_trained,
    "gam": load_gam,
    "residual": load_residual,
    "control": open_control,
    "finetune": load_finetuned,
    "classify": load_classified,
    "game": load_game,
}


def load(folder: Path | str) -> Any:
    """What a journey left in a folder: a `Trained`, a GAM, a residual, controlled or fine-tuned model, a game.

    At its best, or where nothing was held out as it was last.
    """
    folder = Path(folder)
    try:
        tree = yaml.safe_load(renamed((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError):
        raise UserError(f"{folder} is no run folder: it has no {CONFIG} that can be read.") from None
    tree = tree if isinstance(tree, dict) else {}
    if (opener := OPENERS.get(kind_of_run(tree) or "")) is not None:
        return opener(folder)
    has = listed_names(sorted(tree)) or "no options"
    raise UserError(
        f"{folder} cannot be opened by itself, as its configuration has {has}: where it was made in Python, repeat the "
        "call with folder=, which reads back what is finished."
    )


def load_language_run(folder: Path) -> Trained[Any]:
    """A run of `ebar train` with its data; a folder of another kind is refused with the place of the model it holds."""
    run = readable_run(folder, "opened", "give")
    if run.kind not in ("train", "pretrain"):
        made = run.kind if run.kind == "made in Python" else f"made by `ebar {run.kind}`"
        raise UserError(f"{folder} was {made}: give the folder of a run of `ebar train`.")
    return load_trained(folder)
