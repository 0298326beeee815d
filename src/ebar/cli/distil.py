"""`ebar distil`: draws of a tilted model, to a file that a model can be trained on."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse.typing import PositiveInt

from ebar.cli.show import show_json, show_table
from ebar.cli.trained import add_sampler, add_tilt, add_truncation, build_sampler, load_trained, tilted, truncated
from ebar.config.options import parse, parser
from ebar.errors import UserError
from ebar.progress import shown
from ebar.training.distillation import Distilled, distil


def main(words: Sequence[str]) -> int:
    """Write the draws, or go on with a file that was interrupted."""
    options = parser(
        words,
        "distil",
        "Draw from a trained model tilted by an energy, to a file with one sequence a line: data to train a model on\n"
        "that has the energy in it. Run it again to go on where it was stopped.",
        "ebar distil runs/motif --tilt '!motif:10001011111000=-10' --n 20000 --output distilled.txt\n"
        "  ebar train --name better --data.kind lines --data.train distilled.txt",
    )
    options.add_argument("run", type=Path, help="folder of a trained run")
    options.add_argument("--n", type=PositiveInt, default=20_000, help="lines")
    options.add_argument("--output", type=Path, required=True, help="file of the lines; its record is OUTPUT.json")
    options.add_argument("--round_size", type=PositiveInt, default=2000,
        help="lines drawn at a time: what memory holds, and what is drawn again after a kill")  # fmt: skip
    options.add_argument("--weighted_draws", type=PositiveInt, default=4,
        help="for each line, where the sampler's draws carry weights and lines are chosen among them")  # fmt: skip
    add_tilt(options)
    add_truncation(options)
    add_sampler(options, words, "quasi_rejection")
    options.set_defaults({"proposal": "look_ahead"})
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    trained = load_trained(arguments.run)
    target = tilted(truncated(trained.model, arguments), arguments, trained)
    if target is None:
        raise UserError("Distillation draws from a tilted model: give --tilt, or use ebar sample for the model itself.")
    with shown(not arguments.json):
        found = distil(
            target,
            int(arguments.n),
            arguments.output,
            decode=trained.corpus.alphabet.decode,
            seed=int(arguments.seed),
            sampler=build_sampler(arguments),
            look_ahead=arguments.proposal == "look_ahead",
            round_size=int(arguments.round_size),
            weighted_draws=int(arguments.weighted_draws),
            about={"tilt": " ".join(arguments.tilt), "alphabet": trained.corpus.alphabet.symbols},
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
