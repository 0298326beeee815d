"""`ebar residual evaluate`: how good a joint model is, beside its base.

The joint model beside its base on held-out prefixes: the perplexity interval, log Z of each prefix with its lower and
upper estimates, how far k̂ lets them be believed, how they move with the number of draws, the last token without an
estimate of Z, energies of data and draws, unique n-grams. Writes results.json and report.html; stopped, it goes on
where it was.

Example:
    ebar residual evaluate runs/mine --prefixes 200 --draws 1000
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ebar.bounds import Count
from ebar.build.residual import load_residual
from ebar.cli.residual_train import show_evaluation
from ebar.cli.show import show_json
from ebar.config.drawing import OfRun
from ebar.config.reader import Manual, read
from ebar.journeys.residual.report import write_residual_page
from ebar.journeys.residual.settings import Measuring
from ebar.progress import shown
from ebar.shards import Workers
from ebar.training.run import Run

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ResidualEvaluateConfig(OfRun, Measuring, Workers):
    """How much is measured."""

    prefixes: Count = 100
    """Test prefixes, spread over the text."""
    draws: Count = 200
    """Of the base, for each prefix; below 100 nothing is established."""


def main(words: Sequence[str]) -> int:
    """Measure on test prefixes; draws and energies are kept, so that it goes on where it was stopped."""
    arguments = read(words, MANUAL, ResidualEvaluateConfig)
    trained = load_residual(arguments.run)
    with shown(not arguments.json):
        evaluation = trained.evaluate(arguments, seed=arguments.seed, workers=arguments)
    Run(arguments.run).add_results(evaluation=evaluation.to_dict())
    page = write_residual_page(arguments.run, evaluation)
    if arguments.json:
        show_json(evaluation.to_dict())
    else:
        show_evaluation(arguments.run, evaluation)
        sys.stdout.write(f"{page}\n")
    return 0
