"""`ebar residual train`: from a language model and text to a joint model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.build.residual import train_residual
from ebar.cli.folder import RunFolder, carry_out
from ebar.cli.show import show_table
from ebar.config.reader import described, read
from ebar.config.residual import MANUAL, ResidualConfig
from ebar.data.chunks import CHUNKS
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.residual.report import write_residual_page
from ebar.shards import Workers
from ebar.store.writing import to_json
from ebar.training.run import open_run
from ebar.types import Estimate


@dataclass(frozen=True, kw_only=True)
class ResidualPlace(RunFolder, Workers):
    """Where the run is kept, and where the base's draws are made."""


def main(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    config, place = read(words, MANUAL, ResidualConfig, ResidualPlace)
    folder = place.folder
    description = described(folder, MANUAL, config)

    def work() -> tuple[Residual, Evaluation | None]:
        with open_run(
            folder, config=description, seed=config.seed, take_over=True, quickly_made=(CHUNKS,),
            advice=f"choose another --name, or delete it; or `ebar residual evaluate {folder}` to measure it otherwise",
        ) as run:  # fmt: skip
            trained, how = train_residual(config, folder, workers=place), config.evaluation
            evaluation = trained.evaluate(how, seed=config.seed, workers=place) if how.prefixes else None
            run.write("results.json", to_json(_results(trained, evaluation), indent=1))
            write_residual_page(folder, evaluation)
        return trained, evaluation

    def show(found: tuple[Residual, Evaluation | None]) -> None:
        if found[1] is not None:
            show_evaluation(folder, found[1])
        sys.stdout.write(f"{folder / 'report.html'}\n")

    return carry_out(place, work, to_dict=lambda found: _results(*found), show=show)


def _results(trained: Residual, evaluation: Evaluation | None) -> dict[str, Any]:
    whole, energy = (
        sum(parameter.numel() for parameter in module.parameters()) for module in (trained.p, trained.energy)
    )
    found: dict[str, Any] = {"parameters": {"base": whole - energy, "energy": energy}}
    return found if evaluation is None else {**found, "evaluation": evaluation.to_dict()}


def show_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """For people."""
    found = evaluation.perplexity
    title = f"{folder}: {len(found.log_z):,} prefixes, {found.by_draws[-1].draws:,} draws each, 95 % intervals"
    figures, reasons = evaluation.figures(), dict[str, list[str]]()
    for name, value in figures.items():
        if isinstance(value, Estimate) and value.warning:
            reasons.setdefault(value.warning, []).append(name)
    silent = [[name, value._replace(warning=None) if isinstance(value, Estimate) else value]
              for name, value in figures.items()]  # fmt: skip
    show_table(title, ("figure", "value"), silent)
    show_table(
        "with fewer draws",
        ("draws", "low", "perplexity", "high", "mean log Z"),
        [[row.draws, row.low, row.value, row.high, row.log_z] for row in found.by_draws],
    )
    for reason, names in reasons.items():
        sys.stdout.write(f"⚠ {reason} ({', '.join(names)})\n")
