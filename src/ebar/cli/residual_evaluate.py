"""`ebar residual evaluate`: how good a joint model is, beside its base."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse.typing import NonNegativeInt, PositiveInt

from ebar.build.residual import load_residual
from ebar.cli.residual_train import tell
from ebar.cli.show import show_json
from ebar.config.options import parse, parser
from ebar.journeys.residual.report import write_residual_page
from ebar.journeys.residual.settings import Measuring
from ebar.progress import shown
from ebar.store.writing import to_json
from ebar.training import Run


def main(words: Sequence[str]) -> int:
    """Measure on test prefixes; draws and energies are kept, so that it goes on where it was stopped."""
    options = parser(
        words,
        "residual evaluate",
        "The joint model beside its base on held-out prefixes: the perplexity interval, log Z of each prefix with its\n"
        "lower and upper estimates, how far k̂ lets them be believed, how they move with the number of draws, the last\n"
        "token without an estimate of Z, energies of data and draws, unique n-grams. Writes results.json and\n"
        "report.html; stopped, it goes on where it was.",
        "ebar residual evaluate runs/mine --prefixes 200 --draws 1000",
    )
    options.add_argument("run", type=Path, help="folder of a trained residual model")
    options.add_argument("--prefixes", type=PositiveInt, default=100, help="test prefixes, spread over the text")
    options.add_argument("--draws", type=PositiveInt, default=200,
        help="of the base, for each prefix; below 100 nothing is established")  # fmt: skip
    options.add_argument("--last_rows", type=NonNegativeInt, default=20,
        help="prefixes whose last token is compared")  # fmt: skip
    options.add_argument("--last_candidates", type=NonNegativeInt, default=64,
        help="tokens scored there one by one, the others by a few of them; 0 for all: then nothing is estimated",
    )  # fmt: skip
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    trained = load_residual(arguments.run)
    how = Measuring(
        prefixes=arguments.prefixes, draws=arguments.draws, last_rows=arguments.last_rows,
        last_candidates=arguments.last_candidates or None,
    )  # fmt: skip
    with shown(not arguments.json):
        evaluation = trained.evaluate(how, seed=arguments.seed)
    run = Run(arguments.run)
    path = run.folder / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    run.write("results.json", to_json({**known, "evaluation": evaluation.to_dict()}, indent=1))
    page = write_residual_page(run.folder, evaluation)
    if arguments.json:
        show_json(evaluation.to_dict())
    else:
        tell(run.folder, evaluation)
        sys.stdout.write(f"{page}\n")
    return 0
