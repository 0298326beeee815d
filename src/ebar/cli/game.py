"""`ebar game`: a generator and an energy trained against each other; its draws, and data by energy."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.build.game import game_as, load_game
from ebar.cli.folder import carry_out
from ebar.cli.show import show_json, write_sheet
from ebar.cli.train import TrainPlace, ending
from ebar.config.drawing import OfRun
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import Answer, Manual, argument, option, read
from ebar.data.images import read_image_file
from ebar.data.points import read_points_file
from ebar.devices import device_named
from ebar.errors import UserError
from ebar.journeys.game.data import Pictures
from ebar.journeys.game.journey import Played, energies_of
from ebar.report.image_sheet import image_sheet
from ebar.training import distributed

HALTED = 1  # the exit code of a game that failed


def train(words: Sequence[str]) -> int:
    """Play, or go on with a game that was interrupted; 1 where it was halted."""
    config, place = read(words, MANUAL, GameConfig, TrainPlace)
    found: list[Played] = []

    def work() -> Played:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the game was halted", UserWarning)  # `show` says it
            played = game_as(config, place.folder, quiet=place.json, replace_config=place.replace_config)
        if distributed.rank() == 0:
            played.report(place.folder / "report.html")
        found.append(played)
        return played

    with distributed.processes(device_named(config.device)):
        code = carry_out(place, work, to_dict=_figures, show=lambda played: _show(played, place))
    halted = any(played.result is not None and played.result.status == "halted" for played in found)
    return HALTED if halted else code


def _figures(played: Played) -> dict[str, Any]:
    result = played.result
    assert result is not None
    position = result.position
    last = {name: points[-1][1] for name in ("gap", "energy_data", "energy_samples", "spread")
            if (points := played.curve(name))}  # fmt: skip
    return {"status": result.status, "reason": result.reason, "step": position.step, "epoch": position.epoch, **last}


def _show(played: Played, place: TrainPlace) -> None:
    result = played.result
    assert result is not None
    sys.stdout.write(f"{ending(result)}\n")
    if result.status == "halted":
        sys.stdout.write("The last good state is kept: the same command goes on from it, and halts again.\n")
    sys.stdout.write(f"{place.folder / 'report.html'}\n")


@dataclass(frozen=True, kw_only=True)
class GameSampleConfig(OfRun):
    """What to draw."""

    n: Count = 10
    """Draws."""
    energies: bool = False
    """Whether to print their energies."""
    output: Path | None = option(metavar="FILE")
    """PNG file for images."""


def sample(words: Sequence[str]) -> int:
    """`ebar game sample`: draws of a game's generator.

    Points are printed one per line, numbers separated by tabs, each line beginning with the draw's energy where
    --energies is given. Images go to a PNG sheet, --output.

    Example:
        ebar game sample runs/biased --n 5
        ebar game sample runs/digits --n 100 --output digits.png
    """
    config = read(words, Manual.of(sample.__doc__), GameSampleConfig)
    played = load_game(config.run)
    weight = next(played.generator.parameters())
    drawn = played.sample(config.n, generator=Generator(weight.device).manual_seed(config.seed))
    energies = energies_of(played, drawn).tolist()
    if drawn.dim() == 4 and config.output is None:
        raise UserError("Images are written to a sheet: give --output, a PNG file.")
    if config.output is not None:
        _draw(config.output, drawn)
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


def rank(words: Sequence[str]) -> int:
    """`ebar game rank`: data by energy, the likeliest first.

    Ranks the held-out data of a game's run, or the points or images of a file, by the energy that it has learnt. Prints
    the energy and, after a tab, the number of the row, counted from 0, and the numbers of a point; the first and the
    last of the ranking. Images go to a PNG sheet, --output.

    Example:
        ebar game rank runs/biased --n 10
        ebar game rank runs/biased --input points.csv --json
        ebar game rank runs/digits --n 100 --output ranked.png
    """
    config = read(words, Manual.of(rank.__doc__), GameRankConfig)
    played = load_game(config.run)
    x = _rows(played, config.input)
    ranking = played.rank(x)
    ends = torch.cat([ranking.first(config.n), ranking.last(min(config.n, max(0, len(x) - config.n)))])
    if config.output is not None:
        _draw(config.output, x[ends])
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


def _draw(output: Path, x: Float[Tensor, "rows ..."]) -> None:
    if x.dim() != 4:
        raise UserError("Points are printed, not drawn: leave out --output.")
    write_sheet(output, image_sheet(x))


def _rows(played: Played, path: Path | None) -> Float[Tensor, "rows ..."]:
    if path is None:
        return played.data.rows(played.data.held_out)
    if len(played.data.shape) == 1:
        return read_points_file(path)
    return Pictures(read_image_file(path), torch.get_default_dtype()).fetch(slice(None))
