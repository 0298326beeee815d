"""`ebar gam`: from a little data and a hunch about features to a better autoregressive model."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ebar.cli.show import show_interrupted, show_json, show_table
from ebar.cli.train import run_folder
from ebar.config.gam import Gam, as_gam, gam_parser
from ebar.config.options import parse
from ebar.journeys.gam.journey import check, travel
from ebar.journeys.gam.measure import measure
from ebar.journeys.gam.report import Figures, figures_of, write_gam_page
from ebar.progress import shown
from ebar.store.differences import another_configuration
from ebar.store.writing import to_json
from ebar.store.yaml import as_yaml
from ebar.training import open_run
from ebar.types import Estimate


def main(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    options = gam_parser(
        words,
        "gam",
        "Fit an autoregressive model r, find how much each of your features must count for P = r·exp⟨λ, φ⟩ to have\n"
        "the data's moments, draw from P, and train π on the draws. Run it again to go on where it was stopped.",
        "ebar gam --name motif --data.motif 10001011111000 --data.size 500 --ft 1001111\n"
        "  ebar gam --name mine --data.kind lines --data.train sequences.txt --features 'expression:(01){3}'",
    )
    options.add_argument("--name", type=str, default="gam", help="of the run: its folder is RUNS/NAME")
    options.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    arguments = parse(options, words)
    gam = as_gam(arguments)
    check(gam)
    folder = run_folder(arguments.runs, arguments.name)
    config = as_yaml(asdict(gam))
    _same(folder, config)
    try:
        with shown(not arguments.json), open_run(folder, config=config, seed=gam.seed) as run:
            journey = travel(gam, folder, quiet=arguments.json)
            measured = measure(journey, seed=gam.seed, exact=gam.exact, pool=gam.checks)
            figures = figures_of(journey, measured)
            run.write("results.json", to_json(figures.to_dict(), indent=1))
            write_gam_page(journey, figures, seed=gam.seed)
    except KeyboardInterrupt:
        return show_interrupted(folder, as_json=arguments.json)
    if arguments.json:
        show_json({"status": "finished", "folder": str(folder), **figures.to_dict()})
    else:
        _tell(gam, figures, folder)
    return 0


def _same(folder: Path, config: str) -> None:
    """Told before any work: another configuration would need other stages."""
    path = folder / "config.yaml"
    if path.exists() and path.read_text(encoding="utf-8") != config:
        raise another_configuration(folder, config, "choose another name, or remove the folder")


def _tell(gam: Gam, figures: Figures, folder: Path) -> None:
    names = list(figures.models)
    rows = [[title, *(_cell(column.get(title)) for column in figures.models.values())] for title in figures.titles]
    language = "" if figures.entropy is None else f", H = {figures.entropy:.6f} nats per token"
    show_table(f"{folder}: 95 % intervals{language}", ["", *names], rows)
    coefficients = [
        [name, *(_cell(row[place]) for row in figures.coefficients)] for place, name in enumerate(figures.features)
    ]
    rounds = ["λ"] if gam.rounds == 1 else [f"λ, round {number}" for number in range(1, gam.rounds + 1)]
    show_table("how much each feature counts", ["feature", *rounds], coefficients)
    for warning in figures.warnings:
        sys.stdout.write(f"⚠ {warning}\n")
    sys.stdout.write(f"{folder / 'report.html'}\n")


def _cell(figure: Estimate | None) -> str:
    if figure is None:
        return "–"
    if figure.is_exact:
        return f"{figure.value:.4f} (exact)"
    return f"{figure.value:.4f} [{figure.low:.4f}, {figure.high:.4f}]"
