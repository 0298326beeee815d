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
from ebar.config.reader import Manual, argument, read
from ebar.progress import shown
from ebar.recipes import RECIPES

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
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
    json: bool = False
    """Print the result as one JSON object."""


def main(words: Sequence[str]) -> int:
    """Without a name: list what there is and what has been recorded."""
    arguments = read(words, MANUAL, ReproduceConfig)
    from ebar.recipes.reproduce import default_workers, recorded, render, reproduce

    if arguments.recipe is None and arguments.render:
        for name, scales in recorded(arguments.output).items():
            for scale in scales:
                sys.stdout.write(f"{render(name, scale=scale, output=arguments.output).with_suffix('.md')}\n")
        return 0
    if arguments.recipe is None:
        found = recorded(arguments.output)
        if arguments.json:
            sys.stdout.write(json.dumps(found, indent=1) + "\n")
        else:
            sys.stdout.write(f"Recipes, and what is recorded of them under {arguments.output}:\n")
            for name, scales in found.items():
                sys.stdout.write(f"{name:<22} {RECIPES.help(name)}\n")
                sys.stdout.write(f"{'':<22} recorded: {', '.join(scales) or 'nothing yet'}\n")
        return 0
    RECIPES.choose(arguments.recipe)
    if arguments.render:
        path = render(arguments.recipe, scale=arguments.scale, output=arguments.output)
        sys.stdout.write(path.read_text() if arguments.json else f"{path.with_suffix('.md')}\n")
        return 0
    command = f"ebar reproduce {arguments.recipe} --scale {arguments.scale}"
    command += "" if arguments.backend == "joblib" else f" --backend {arguments.backend}"
    with shown(not arguments.json):
        path = reproduce(
            arguments.recipe,
            scale=arguments.scale,
            output=arguments.output,
            work=arguments.work,
            workers=arguments.workers or default_workers(),
            fresh=arguments.fresh,
            command=command,
            backend=arguments.backend,
        )
    if arguments.json:
        sys.stdout.write(path.read_text())
    else:
        _show(path)
    return 0


def _show(path: Path) -> None:
    from ebar.cli.show import show_table
    from ebar.recipes.layout import listed
    from ebar.recipes.render import row_from

    record = json.loads(path.read_text())
    title = f"{record['title']} ({record['source']}), scale {record['scale']}, {record['wall_seconds']} s"
    laid = listed([row_from(row) for row in record["rows"]])
    show_table(title, laid.header, laid.cells)
    sys.stdout.write(f"written: {path}, {path.with_suffix('.md').name} and {path.with_suffix('.svg').name}\n")
