"""`ebar residual evaluate`: how good a joint model is, beside its base."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Count, Natural
from ebar.build.residual import load_residual
from ebar.cli.residual_train import tell
from ebar.cli.show import show_json
from ebar.config.reader import Manual, argument, read
from ebar.journeys.residual.report import write_residual_page
from ebar.journeys.residual.settings import Measuring
from ebar.progress import shown
from ebar.training import Run

MANUAL = Manual(
    command="residual evaluate",
    purpose="The joint model beside its base on held-out prefixes: the perplexity interval, log Z of each prefix with"
    " its lower and upper estimates, how far k̂ lets them be believed, how they move with the number of "
    "draws, the last token without an estimate of Z, energies of data and draws, unique n-grams. Writes "
    "results.json and report.html; stopped, it goes on where it was.",
    example="ebar residual evaluate runs/mine --prefixes 200 --draws 1000",
)


@dataclass(frozen=True, kw_only=True)
class ResidualEvaluateConfig:
    """How much is measured."""

    run: Path = argument()
    """Folder of a trained residual model."""
    prefixes: Count = 100
    """Test prefixes, spread over the text."""
    draws: Count = 200
    """Of the base, for each prefix; below 100 nothing is established."""
    last_rows: Natural = 20
    """Prefixes whose last token is compared."""
    last_candidates: Natural = 64
    """Tokens scored there one by one, the others by a few of them; 0 for all: then nothing is estimated."""
    seed: Natural = 0
    """Of the draws."""
    json: bool = False
    """Print one JSON object."""


def main(words: Sequence[str]) -> int:
    """Measure on test prefixes; draws and energies are kept, so that it goes on where it was stopped."""
    arguments = read(words, MANUAL, ResidualEvaluateConfig)
    trained = load_residual(arguments.run)
    how = Measuring(
        prefixes=arguments.prefixes, draws=arguments.draws, last_rows=arguments.last_rows,
        last_candidates=arguments.last_candidates or None,
    )  # fmt: skip
    with shown(not arguments.json):
        evaluation = trained.evaluate(how, seed=arguments.seed)
    Run(arguments.run).add_results(evaluation=evaluation.to_dict())
    page = write_residual_page(arguments.run, evaluation)
    if arguments.json:
        show_json(evaluation.to_dict())
    else:
        tell(arguments.run, evaluation)
        sys.stdout.write(f"{page}\n")
    return 0
