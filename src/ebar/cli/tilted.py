"""`ebar distil` and `ebar estimate`: what an energy makes of a trained model, as draws in a file and as figures."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Amount, Count
from ebar.build.drawing import build_proposal, open_drawing
from ebar.build.terms import Term, read_feature
from ebar.cli.show import show, show_json, show_table, show_warnings
from ebar.config.drawing import TiltedDrawing
from ebar.config.reader import Chosen, Manual, list_option, option, read
from ebar.data.tokenisers import reading_of_space
from ebar.errors import UserError, choose
from ebar.features.feature import bind
from ebar.journeys.estimate import estimate
from ebar.maths.divergences import DIVERGENCES
from ebar.progress import shown
from ebar.shards import Workers
from ebar.shards.workers import on_threads
from ebar.training.distillation import Distilled, distil


@dataclass(frozen=True, kw_only=True)
class DistilConfig(TiltedDrawing, Workers):
    """What to draw, and to which file."""

    n: Count = 20_000
    """Lines."""
    output: Path
    """File of the lines; its record is OUTPUT.json."""
    round_size: Count = 2000
    """Lines of a shard: what memory holds for each process, and what is drawn again after a kill."""
    weighted_draws: Count = 4
    """For each line, where the sampler's draws carry weights and lines are chosen among them."""


def to_file(words: Sequence[str]) -> int:
    """`ebar distil`: draws of a tilted model, to a file that a model can be trained on.

    Draw from a trained model tilted by an energy, to a file with one sequence a line: data to train a model on that has
    the energy in it. Run it again to go on where it was stopped.

    Example:
        ebar distil runs/motif --tilt '!motif:10001011111000=-10' --n 20000 --output distilled.txt
        ebar distil runs/motif --tilt '!motif:10001011111000=-10' --output many.txt --backend joblib
        ebar train --name better --data.kind lines --data.train distilled.txt
    """
    defaults = {"sampler": Chosen(kind="quasi_rejection"), "proposal": "look_ahead"}
    arguments = read(words, Manual.of(to_file.__doc__, defaults=defaults), DistilConfig)
    data, _, target, sampler, *_ = open_drawing(arguments)
    if target is None:
        raise UserError("Distillation draws from a tilted model: give --tilt, or use ebar sample for the model itself.")
    with shown(not arguments.json):
        found = distil(
            target,
            arguments.n,
            arguments.output,
            decode=data.alphabet.decode,
            seed=arguments.seed,
            sampler=sampler,
            look_ahead=arguments.proposal == "look_ahead",
            round_size=arguments.round_size,
            weighted_draws=arguments.weighted_draws,
            about={"tilt": " ".join(arguments.tilt), "alphabet": data.alphabet.symbols},
            workers=arguments,
        )
    if arguments.json:
        show_json(found.to_dict())
    else:
        _tell(found)
    return 0 if found.complete else 130


def _tell(found: Distilled) -> None:
    if not found.complete:
        sys.stdout.write(f"interrupted after {found.n:,} lines: run the same command to go on\n")
        return
    figures = {
        "acceptance rate": found.acceptance_rate,
        "total variation from p": found.total_variation,
        "log Z": found.log_z,
        "mean length": found.mean_length,
        **found.moments,
    }
    rows = [(name, figure) for name, figure in figures.items() if figure is not None]
    show_table(f"{found.n:,} lines in {found.path}", ["", "value"], rows)
    show_warnings(found.warnings, aside=True)


@dataclass(frozen=True, kw_only=True)
class EstimateConfig(TiltedDrawing, Workers):
    """What to estimate."""

    n: Count = 10_000
    """Draws."""
    shard_size: Count = 2000
    """Draws of a shard: what memory holds for each process, and what is drawn again after a kill."""
    folder: Path | None = None
    """Where shards are kept, so that the same command goes on after it was stopped; by default nowhere."""
    feature: tuple[Term, ...] = list_option("KIND:ARGUMENT", lambda: "more features to average")
    divergence: tuple[str, ...] = list_option(
        "NAME", lambda: f"of tilted from plain: {', '.join(sorted(DIVERGENCES))}", default=("kl",)
    )
    within: Amount | None = option(metavar="EPSILON")
    """Also say how many draws make log Z and the means known within ± EPSILON."""


def figures_of(words: Sequence[str]) -> int:
    """`ebar estimate`: what an energy makes of a trained model, with intervals.

    log Z of a tilted model with the jackknife's bounds, the mean of each feature under the model and under the tilted
    model, and the divergence between the two, all with intervals and warnings.

    Example:
        ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --n 20000
        ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --sampler.kind look_ahead --n 2000
    """
    config = read(words, Manual.of(figures_of.__doc__, defaults={"sampler": Chosen(kind="importance")}), EstimateConfig)
    for kind in config.divergence:
        choose(DIVERGENCES, kind, "divergence")
    data, base, target, sampler, generator, *_ = open_drawing(config)
    if target is None:
        raise UserError("There is nothing to estimate without an energy: give --tilt KIND:ARGUMENT=COEFFICIENT.")
    features = [bind(read_feature(words), reading_of_space(data.tokeniser, base.space)) for words in config.feature]
    with shown(not config.json):
        with on_threads(config.threads):
            proposal = build_proposal(config, sampler, target, config.n, generator) if sampler.weighted else None
        figures = estimate(
            target, config.n, features=features, sampler=sampler, proposal=proposal, divergences=config.divergence,
            within=config.within, generator=generator, shard_size=config.shard_size, workers=config,
            folder=config.folder,
        )  # fmt: skip
    title = f"{config.run}: {config.sampler.kind}, {config.n:,} draws, seed {config.seed}"
    return show(title, figures, as_json=config.json)
