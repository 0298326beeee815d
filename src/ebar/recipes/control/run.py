"""One run: λ, what it came to, and π; each stage goes on where it was killed."""

import json
from pathlib import Path
from typing import Any

from ebar.config.control import ControlConfig
from ebar.journeys.control.fit import check, fit
from ebar.journeys.control.settings import Tuning
from ebar.journeys.control.tune import tune
from ebar.recipes.control.toy import write_toy
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.configurations import path_of
from ebar.store.writing import once, to_json


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All figures, as plain JSON."""
    seed = int(cell["seed"])
    model = str(write_toy(folder / "toy")) if cell["model"] == "toy" else path_of(cell["model"])
    control = ControlConfig(model=model, features=tuple(cell["terms"]), seed=seed, **cell["control"])
    controlled = fit(control, folder)
    checked = once(folder / "checked.json", lambda: check(controlled).to_dict())
    tuned = tune(controlled, Tuning(seed=seed, **cell["tuning"]), folder / "tune")
    constraints = [
        {"name": one.feature.name, "wanted": one.moment, "pointwise": one.pointwise} for one in controlled.constraints
    ]
    found: dict[str, Any] = {
        "constraints": constraints,
        "lambda": controlled.fitted.to_dict(),
        "checked": checked,
        "tuned": {name: figure for name, figure in tuned.to_dict().items() if name != "model"},
    }
    plain: dict[str, Any] = json.loads(to_json(found))
    return plain
