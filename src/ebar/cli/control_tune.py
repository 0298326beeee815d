"""`ebar control tune`: a language model of its own that has learnt what is wanted."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.control import open_control
from ebar.cli.folder import carry_out, run_folder
from ebar.cli.show import show_table
from ebar.config.reader import Manual, argument, read
from ebar.errors import UserError
from ebar.journeys.control.report import Tuned
from ebar.journeys.control.tuning import Tuning

MANUAL = Manual(
    command="control tune",
    purpose="π, a language model of its own, brought to the controlled one by distributional policy gradient (DPG). "
    "It is saved so that transformers alone can read it. Run it again to go on where it was stopped.",
    example="ebar control tune runs/rabbits --steps 300 --learning_rate 0.001\n"
    "  ebar control tune runs/rabbits --name whole --lora_rank null",
)


@dataclass(frozen=True, kw_only=True)
class TunePlace:
    """Where the controlled model is and π is kept."""

    run: Path = argument()
    """Folder of `ebar control fit`."""
    name: str = "tune"
    """Of π: its folder is RUN/NAME."""
    json: bool = False
    """Print the result as one JSON object."""


def main(words: Sequence[str]) -> int:
    """π, or the rest of its training where that was interrupted."""
    tuning, place = read(words, MANUAL, Tuning, TunePlace)
    folder = run_folder(place.run, place.name)
    if place.name in ("checkpoints", "lambda", "check") or folder.is_file():
        raise UserError(f"{folder} is part of the run itself: choose another --name.")

    def show(tuned: Tuned) -> None:
        which = f"best at step {tuned.best_step}" if tuned.best_step else "best at step 0: no step came nearer than q"
        show_table(f"{folder}: {which}", ("figure", "before", "best π", "p"), tuned.rows())
        sys.stdout.write(f"{folder / 'model'}\n{folder / 'report.html'}\n")

    return carry_out(
        folder, lambda: open_control(place.run).tune(folder, **vars(tuning)), as_json=place.json,
        to_dict=Tuned.to_dict, show=show,
    )  # fmt: skip
