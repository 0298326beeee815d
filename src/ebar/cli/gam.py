"""`ebar gam`: from a little data and a hunch about features to a better autoregressive model."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ebar.build.gam import make_gam
from ebar.cli.folder import SharedRunFolder, carry_out
from ebar.cli.show import show_table, show_warnings
from ebar.cli.train import say_backbone
from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import read
from ebar.journeys.gam.figures import GamFigures
from ebar.types import Estimate


def main(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    config, place = read(words, MANUAL, GamConfig, SharedRunFolder)
    say_backbone(words, config, place)
    return carry_out(
        place,
        lambda: make_gam(config, place.folder, quiet=place.json, workers=place)[1],
        to_dict=GamFigures.to_dict,
        show=lambda figures: _show(figures, place.folder),
    )


def _show(figures: GamFigures, folder: Path) -> None:
    rows = [[title, *map(_cell, row)] for title, row in figures.table().items()]
    language = "" if figures.entropy is None else f", H = {figures.entropy:.6f} nats per token"
    show_table(f"{folder}: 95 % intervals{language}", ["", *figures.models], rows)
    coefficients = [
        [name, *(_cell(row[place]) for row in figures.coefficients)] for place, name in enumerate(figures.features)
    ]
    several = len(figures.fitted) > 1
    rounds = [f"λ, round {number}" if several else "λ" for number in range(1, len(figures.fitted) + 1)]
    show_table("how much each feature counts", ["feature", *rounds], coefficients)
    show_warnings(figures.warnings)
    sys.stdout.write(f"{figures.verdict}\n")
    sys.stdout.write(f"{folder / 'report.html'}\n")


def _cell(figure: Estimate | None) -> str:
    if figure is None:
        return "–"
    if figure.is_exact:
        return f"{figure.value:.4f} (exact)"
    return f"{figure.value:.4f} [{figure.low:.4f}, {figure.high:.4f}]"
