"""`ebar control tune`: a language model of its own that has learnt what is wanted."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ebar.cli.show import show_interrupted, show_json, show_table
from ebar.cli.train import run_folder
from ebar.config.options import parse, parser
from ebar.errors import UserError
from ebar.journeys.control.fit import open_controlled
from ebar.journeys.control.report import write_tune_page
from ebar.journeys.control.settings import Tuning
from ebar.journeys.control.tune import tune
from ebar.progress import shown


def main(words: Sequence[str]) -> int:
    """π, or the rest of its training where that was interrupted."""
    options = parser(
        words,
        "control tune",
        "π, a language model of its own, brought to the controlled one by distributional policy gradient (DPG).\n"
        "It is saved so that transformers alone can read it. Run it again to go on where it was stopped.",
        "ebar control tune runs/rabbits --steps 300 --learning_rate 0.001\n"
        "  ebar control tune runs/rabbits --name whole --lora_rank null",
    )
    options.add_argument("run", type=Path, help="folder of `ebar control fit`")
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_class_arguments(Tuning, instantiate=False)
    options.add_argument("--name", type=str, default="tune", help="of π: its folder is RUN/NAME")
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    given = parse(options, words).as_dict()
    run, name, as_json = (given.pop(key) for key in ("run", "name", "json"))
    given.pop("config", None)
    tuning, folder = Tuning(**given), run_folder(run, name)
    if name == "checkpoints" or folder.is_file():
        raise UserError(f"{folder} is part of the run itself: choose another --name.")
    try:
        with shown(not as_json):
            tuned = tune(open_controlled(run), tuning, folder)
            write_tune_page(folder, tuned)
    except KeyboardInterrupt:
        return show_interrupted(folder, as_json=as_json)
    if as_json:
        show_json({"status": "finished", **tuned.to_dict()})
        return 0
    rows = [[name, tuned.start[name], tuned.end[name], tuned.target.get(name, "–")] for name in tuned.start]
    which = f"best at step {tuned.best_step}" if tuned.best_step else "best at step 0: no step came nearer than q"
    show_table(f"{folder}: {which}", ("figure", "before", "best π", "p"), rows)
    sys.stdout.write(f"{folder / 'model'}\n{folder / 'report.html'}\n")
    return 0
