"""`ebar estimate`: what an energy makes of a trained model, with intervals.

log Z of a tilted model with the jackknife's bounds, the mean of each feature under the model and under the tilted
model, and the divergence between the two, all with intervals and warnings.

Example:
    ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --n 20000
    ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --sampler.kind look_ahead --n 2000
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Amount, Count
from ebar.build.drawing import build_proposal, open_drawing
from ebar.build.terms import Term, read_feature
from ebar.cli.show import show
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

MANUAL = Manual.of(__doc__, defaults={"sampler": Chosen(kind="importance")})


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


def main(words: Sequence[str]) -> int:
    """log Z with its bounds, moments before and after, and how far the tilt moves the model."""
    config = read(words, MANUAL, EstimateConfig)
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
