"""`ebar game sample`: draws of a game's generator.

Points are printed one per line, numbers separated by tabs, each line beginning with the draw's energy where
--energies is given. Images go to a PNG sheet, --output.

Example:
    ebar game sample runs/biased --n 5
    ebar game sample runs/digits --n 100 --output digits.png
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Generator

from ebar.bounds import Count
from ebar.build.game import load_game
from ebar.cli.show import show_json
from ebar.config.drawing import OfRun
from ebar.config.reader import Manual, option, read
from ebar.errors import UserError
from ebar.journeys.game.played import energies_of
from ebar.report.image_sheet import image_sheet
from ebar.store.writing import replace, saving

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class GameSampleConfig(OfRun):
    """What to draw."""

    n: Count = 10
    """Draws."""
    energies: bool = False
    """Whether to print their energies."""
    output: Path | None = option(metavar="FILE")
    """PNG file for images."""


def main(words: Sequence[str]) -> int:
    """Draws as text, or as a sheet."""
    config = read(words, MANUAL, GameSampleConfig)
    played = load_game(config.run)
    weight = next(played.generator.parameters())
    drawn = played.sample(config.n, generator=Generator(weight.device).manual_seed(config.seed))
    energies = energies_of(played, drawn).tolist()
    if drawn.dim() == 4 and config.output is None:
        raise UserError("Images are written to a sheet: give --output, a PNG file.")
    if config.output is not None:
        if drawn.dim() != 4:
            raise UserError("Points are printed, not drawn: leave out --output.")
        with saving(str(config.output)):
            replace(config.output, image_sheet(drawn))
    if config.json:
        samples = [] if drawn.dim() == 4 else [{"point": row} for row in drawn.tolist()]
        show_json({"draws": config.n, "energies": energies, "samples": samples})
    elif config.output is not None:
        sys.stdout.write(f"{config.output}\n")
    else:
        if config.energies:
            sys.stderr.write("energy, point\n")
        for row, energy in zip(drawn.tolist(), energies, strict=True):
            numbers = [energy, *row] if config.energies else row
            sys.stdout.write("\t".join(f"{number:.6g}" for number in numbers) + "\n")
    return 0
