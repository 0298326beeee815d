"""`ebar reproduce`: run a published table or figure again.

Run a published table or figure again; finished runs are kept, so that it can be interrupted and resumed. Without a
name: list what there is and what has been recorded.

Example:
    ebar reproduce spine/samplers --scale demo
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.bounds import Natural
from ebar.config.reader import Answer, Manual, argument, read
from ebar.errors import UserError
from ebar.progress import shown
from ebar.recipes import RECIPES

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig(Answer):
    """What to reproduce, and where it is kept."""

    recipe: str | None = argument(None)
    """FAMILY/NAME."""
    scale: Literal["demo", "cpu", "paper"] = "demo"
    """Demo: seconds to minutes; cpu: up to 90 minutes; paper: the authors' settings."""
    output: Path = Path("docs/results")
    """Folder for result, table, plot."""
    work: Path = Path("runs/reproduce")
    """Folder for the single runs."""
    workers: Natural = 0
    """Processes; 0 means one per core."""
    backend: Literal["joblib", "ray"] = "joblib"
    """What runs the processes; ray can span machines."""
    fresh: bool = False
    """Forget the runs kept from an earlier call."""
    render: bool = False
    """Run nothing: write table and plot anew from the recorded result; without a name, those of all of them."""
    summary: bool = False
    """Run nothing: write one page on all tables and figures of the documents, from the recorded results."""
    page: Path = Path("docs/reproductions.md")
    """Where that page is written."""


def main(words: Sequence[str]) -> int:
    """Without a name: list what there is and what has been recorded."""
    config = read(words, MANUAL, ReproduceConfig)
    if config.summary:
        return _summarise(config)
    from ebar.recipes.reproduce import default_workers, recorded, render, reproduce

    if config.recipe is None:
        found = recorded(config.output)
        if config.render:
            for name, scales in found.items():
                for scale in scales:
                    sys.stdout.write(f"{render(name, scale=scale, output=config.output).with_suffix('.md')}\n")
        elif config.json:
            sys.stdout.write(json.dumps(found, indent=1) + "\n")
        else:
            sys.stdout.write(f"Recipes, and what is recorded of them under {config.output}:\n")
            for name, scales in found.items():
                sys.stdout.write(f"{name:<22} {RECIPES.help(name)}\n")
                sys.stdout.write(f"{'':<22} recorded: {', '.join(scales) or 'nothing yet'}\n")
        return 0
    RECIPES.choose(config.recipe)
    if config.render:
        path = render(config.recipe, scale=config.scale, output=config.output)
        sys.stdout.write(path.read_text() if config.json else f"{path.with_suffix('.md')}\n")
        return 0
    command = f"ebar reproduce {config.recipe} --scale {config.scale}"
    command += "" if config.backend == "joblib" else f" --backend {config.backend}"
    with shown(not config.json):
        path = reproduce(
            config.recipe, scale=config.scale, output=config.output, work=config.work, fresh=config.fresh,
            workers=config.workers or default_workers(), command=command, backend=config.backend,
        )  # fmt: skip
    if config.json:
        sys.stdout.write(path.read_text())
    else:
        _show(path)
    return 0


def _summarise(config: ReproduceConfig) -> int:
    from ebar.recipes.summary import as_json, write_summary

    if config.recipe is not None:
        raise UserError("The summary is of all recipes: leave out --summary, or the name.")
    lines = write_summary(config.page, config.output)
    sys.stdout.write(json.dumps(as_json(lines), indent=1) + "\n" if config.json else f"{config.page}\n")
    return 0


def _show(path: Path) -> None:
    from ebar.cli.show import show_table
    from ebar.recipes.layout import list_of_figures
    from ebar.recipes.render import row_from

    record = json.loads(path.read_text())
    title = f"{record['title']} ({record['source']}), scale {record['scale']}, {record['wall_seconds']} s"
    laid = list_of_figures([row_from(row) for row in record["rows"]])
    show_table(title, laid.header, laid.cells)
    sys.stdout.write(f"written: {path}, {path.with_suffix('.md').name} and {path.with_suffix('.svg').name}\n")
