"""`ebar gam`: from a little data and a hunch about features to a better autoregressive model."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ebar.cli.folder import Place, carry_out
from ebar.cli.show import show_table
from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import described, read
from ebar.journeys.gam.journey import check, travel
from ebar.journeys.gam.measure import measure
from ebar.journeys.gam.report import Figures, figures_of, write_gam_page
from ebar.store.differences import another_configuration
from ebar.store.writing import to_json
from ebar.training import open_run
from ebar.types import Estimate


def main(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    config, place = read(words, MANUAL, GamConfig, Place)
    check(config)
    folder = place.folder
    description = described(folder, MANUAL, config)

    def work() -> Figures:
        with open_run(folder, config=description, seed=config.seed) as run:
            journey = travel(config, folder, quiet=place.json)
            measured = measure(journey, seed=config.seed, exact=config.exact, pool=config.checks)
            figures = figures_of(journey, measured)
            run.write("results.json", to_json(figures.to_dict(), indent=1))
            write_gam_page(journey, figures, seed=config.seed)
        return figures

    _same(folder, description)
    return carry_out(
        folder, work, as_json=place.json, to_dict=Figures.to_dict, show=lambda figures: _tell(config, figures, folder)
    )


def _same(folder: Path, config: str) -> None:
    """Another configuration would need other stages: refused before any work."""
    path = folder / "config.yaml"
    if path.exists() and path.read_text(encoding="utf-8") != config:
        raise another_configuration(folder, config, "choose another name, or remove the folder")


def _tell(gam: GamConfig, figures: Figures, folder: Path) -> None:
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
