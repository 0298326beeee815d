"""`ebar control fit`: λ for what is to be true of the text, and what that came to."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jsonargparse.typing import PositiveFloat

from ebar.build.terms import absolute, kinds_help
from ebar.cli.show import show_json, show_table
from ebar.cli.train import run_folder
from ebar.config.control import Control
from ebar.config.options import parse, parser
from ebar.journeys.control.fit import check, fit
from ebar.journeys.control.folder import another, take_over
from ebar.journeys.control.report import MOMENTS, distance_rows, lambda_warnings, moment_rows, write_fit_page
from ebar.progress import shown
from ebar.store.writing import to_json
from ebar.store.yaml import as_yaml
from ebar.training import open_run


def main(words: Sequence[str]) -> int:
    """λ, or that of a run that has it; and fresh draws."""
    options = parser(
        words,
        "control fit",
        "P(x) = q(x)·exp⟨λ, φ(x)⟩, with λ such that each feature has the mean it is to have over all text, or is in\n"
        "every single one (=1), or in none (=0). Run it again to read what it found.",
        "ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'",
    )
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--features", nargs="+", type=str, default=[], metavar="KIND:ARGUMENT=MOMENT",
        help=f"what is wanted of the text; ! in front of KIND means absent. {kinds_help()}")  # fmt: skip
    options.add_class_arguments(Control, skip={"features"}, instantiate=False)
    options.add_argument("--name", type=str, default="control", help="of the run: its folder is RUNS/NAME")
    options.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    options.add_argument("--within", type=PositiveFloat, metavar="EPSILON",
        help="also say how many draws make log Z and the moments of p known within ± EPSILON")  # fmt: skip
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    given = parse(options, words).as_dict()
    name, runs, within, as_json = (given.pop(key) for key in ("name", "runs", "within", "json"))
    given.pop("config", None)
    control = Control(**{**given, "features": tuple(absolute(term) for term in given["features"])})
    control = Control(**{**asdict(control), "model": _place(control.model)})
    folder = run_folder(runs, name)
    config = as_yaml(asdict(control))
    other = another(folder, config)
    with shown(not as_json), open_run(folder, config=config, seed=control.seed, replace_config=other) as run:
        if other:
            take_over(run, control.seed)
        controlled = fit(control, folder)
        checked = check(controlled, within=within)
        figures = {"lambda": controlled.fitted.to_dict(), **checked.to_dict()}
        run.write("results.json", to_json(figures, indent=1))
        write_fit_page(folder, controlled, checked)
    if as_json:
        show_json({"folder": str(folder), **figures})
        return 0
    show_table(f"{folder}: 95 % intervals", MOMENTS, moment_rows(controlled, checked))
    show_table("how far it is", ("figure", "value"), distance_rows(checked))
    if checked.budgets is not None:
        show_table("how many draws", ("figure", "draws"), list(checked.budgets.items()))
    for warning in lambda_warnings(controlled.fitted):
        sys.stdout.write(f"⚠ {warning}\n")
    sys.stdout.write(f"{folder / 'report.html'}\n")
    return 0


def _place(model: str) -> str:
    """A file or folder by its whole path; what is none is a name on the hub."""
    return str(Path(model).resolve()) if Path(model).exists() else model
