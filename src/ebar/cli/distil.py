"""`ebar distil`: draws of a tilted model, to a file that a model can be trained on.

Draw from a trained model tilted by an energy, to a file with one sequence a line: data to train a model on that has
the energy in it. Run it again to go on where it was stopped.

Example:
    ebar distil runs/motif --tilt '!motif:10001011111000=-10' --n 20000 --output distilled.txt
    ebar distil runs/motif --tilt '!motif:10001011111000=-10' --output many.txt --backend joblib
    ebar train --name better --data.kind lines --data.train distilled.txt
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Count
from ebar.build.drawing import open_drawing
from ebar.cli.show import show_json, show_table
from ebar.config.drawing import TiltedDrawing
from ebar.config.reader import Chosen, Manual, read
from ebar.errors import UserError
from ebar.progress import shown
from ebar.shards import Workers
from ebar.training.distillation import Distilled, distil

MANUAL = Manual.of(__doc__, defaults={"sampler": Chosen(kind="quasi_rejection"), "proposal": "look_ahead"})


@dataclass(frozen=True, kw_only=True)
class DistilConfig(TiltedDrawing, Workers):
    """What to draw, and to which file."""

    n: Count = 20_000
    """Lines."""
    output: Path
    """File of the lines; its record is OUTPUT.json."""
    round_size: Count = 2000
    """Lines of a shard: what memory holds for each process, and what is drawn again after a kill."""
    weighted_draws: Count = 4
    """For each line, where the sampler's draws carry weights and lines are chosen among them."""


def main(words: Sequence[str]) -> int:
    """Write the draws, or go on with a file that was interrupted."""
    arguments = read(words, MANUAL, DistilConfig)
    data, _, target, sampler, *_ = open_drawing(arguments)
    if target is None:
        raise UserError("Distillation draws from a tilted model: give --tilt, or use ebar sample for the model itself.")
    with shown(not arguments.json):
        found = distil(
            target,
            arguments.n,
            arguments.output,
            decode=data.alphabet.decode,
            seed=arguments.seed,
            sampler=sampler,
            look_ahead=arguments.proposal == "look_ahead",
            round_size=arguments.round_size,
            weighted_draws=arguments.weighted_draws,
            about={"tilt": " ".join(arguments.tilt), "alphabet": data.alphabet.symbols},
            workers=arguments,
        )
    if arguments.json:
        show_json(found.to_dict())
    else:
        _tell(found)
    return 0 if found.complete else 130


def _tell(found: Distilled) -> None:
    if not found.complete:
        sys.stdout.write(f"interrupted after {found.n:,} lines: run the same command to go on\n")
        return
    figures = {
        "acceptance rate": found.acceptance_rate,
        "total variation from p": found.total_variation,
        "log Z": found.log_z,
        "mean length": found.mean_length,
        **found.moments,
    }
    rows = [(name, figure) for name, figure in figures.items() if figure is not None]
    show_table(f"{found.n:,} lines in {found.path}", ["", "value"], rows)
    for warning in found.warnings:
        sys.stderr.write(f"⚠ {warning}\n")
