"""`ebar control tune`: a language model of its own that has learnt what is wanted.

π, a language model of its own, brought to the controlled one by distributional policy gradient (DPG), by learning what
draws that look ahead would choose (distillation), or by whichever of both comes nearer. It goes on until the moments of
π are what was asked. π is saved so that transformers alone can read it. Run it again to go on where it was stopped.

Example:
    ebar control tune runs/rabbits --steps 300 --learning_rate 0.001
    ebar control tune runs/rabbits --name whole --lora_rank null --method both
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.control import open_control
from ebar.cli.folder import carry_out, run_folder
from ebar.cli.show import show_table
from ebar.config.reader import Answer, Manual, argument, read
from ebar.errors import UserError
from ebar.journeys.control.report import TARGET, Tuned
from ebar.journeys.control.tuning import Tuning

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class TunePlace(Answer):
    """Where the controlled model is and π is kept."""

    run: Path = argument()
    """Folder of `ebar control fit`."""
    name: str = "tune"
    """Of π: its folder is RUN/NAME."""

    @property
    def folder(self) -> Path:
        return run_folder(self.run, self.name)


def main(words: Sequence[str]) -> int:
    """π, or the rest of its training where that was interrupted."""
    tuning, place = read(words, MANUAL, Tuning, TunePlace)
    folder = place.folder
    if place.name in ("checkpoints", "lambda", "check") or folder.is_file():
        raise UserError(f"{folder} is part of the run itself: choose another --name.")

    def show(tuned: Tuned) -> None:
        which = f"best at step {tuned.best_step}" if tuned.best_step else "best at step 0: no step came nearer than q"
        how = f"{tuned.method}, {tuned.seconds:.0f} s, {tuned.stopped}"
        show_table(f"{folder}: {which}; {how}", ("figure", "before", "best π", "p"), tuned.rows())
        if tuned.ways is not None:
            rows = [[name, way.distance, way.seconds, way.nats_per_second] for name, way in tuned.ways.items()]
            show_table("both methods", ("method", TARGET, "seconds", "nats nearer per second"), rows)
        sys.stdout.write(f"{folder / 'model'}\n{(tuned.folder or folder) / 'report.html'}\n")

    return carry_out(
        place, lambda: open_control(place.run).tune(folder, **vars(tuning)), to_dict=Tuned.to_dict, show=show
    )
