"""`ebar game rank`: data by energy, the likeliest first.

Ranks the held-out data of a game's run, or the points or images of a file, by the energy that it has learnt. Prints the
energy and, after a tab, the number of the row, counted from 0, and the numbers of a point; the first and the last of
the ranking. Images go to a PNG sheet, --output.

Example:
    ebar game rank runs/biased --n 10
    ebar game rank runs/biased --input points.csv --json
    ebar game rank runs/digits --n 100 --output ranked.png
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.bounds import Count
from ebar.build.game import load_game
from ebar.cli.show import show_json
from ebar.config.reader import Answer, Manual, argument, option, read
from ebar.data.images import read_image_file
from ebar.data.points import read_points_file
from ebar.errors import UserError
from ebar.journeys.game.data import Pictures
from ebar.journeys.game.played import Played
from ebar.report.image_sheet import image_sheet
from ebar.store.writing import replace, saving

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class GameRankConfig(Answer):
    """What to rank."""

    run: Path = argument()
    """Folder of a run of `ebar game train`."""
    input: Path | None = option(metavar="FILE")
    """File of points or images; by default the run's held-out data."""
    n: Count = 10
    """Rows shown from either end of the ranking."""
    output: Path | None = option(metavar="FILE")
    """PNG file for images, the likeliest in the upper rows, the least likely below."""


def main(words: Sequence[str]) -> int:
    """The ranking's two ends."""
    config = read(words, MANUAL, GameRankConfig)
    played = load_game(config.run)
    x = _rows(played, config.input)
    ranking = played.rank(x)
    ends = torch.cat([ranking.first(config.n), ranking.last(min(config.n, max(0, len(x) - config.n)))])
    if config.output is not None:
        if x.dim() != 4:
            raise UserError("Points are printed, not drawn: leave out --output.")
        with saving(str(config.output)):
            replace(config.output, image_sheet(x[ends]))
    if config.json:
        show_json({"rows": len(x), "order": ranking.order.tolist(), "energies": ranking.energies.tolist()})
        return 0
    last = len(ends) - min(config.n, len(x))
    what = "energy, row" + (", point" if x.dim() == 2 else "")
    sys.stderr.write(f"{what}: the {len(ends) - last} of lowest energy first, then the {last} of highest\n")
    for row in ends.tolist():
        numbers = x[row].tolist() if x.dim() == 2 else []
        words_of_row = [f"{float(ranking.energies[row]):.6g}", str(row), *(f"{number:.6g}" for number in numbers)]
        sys.stdout.write("\t".join(words_of_row) + "\n")
    return 0


def _rows(played: Played, path: Path | None) -> Float[Tensor, "rows ..."]:
    if path is None:
        return played.data.rows(played.data.held_out)
    if len(played.data.shape) == 1:
        return read_points_file(path)
    return Pictures(read_image_file(path), torch.get_default_dtype()).fetch(slice(None))
