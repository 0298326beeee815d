"""`ebar estimate`: what an energy makes of a trained model, with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Generator

from ebar.bounds import Amount, Count
from ebar.build.terms import read_energy, read_feature
from ebar.cli.show import show_json, show_table
from ebar.cli.trained import build_proposal, build_sampler, load_trained, truncated
from ebar.config.drawing import Drawing, OfRun, Tilt, Truncation
from ebar.config.reader import Chosen, Manual, listed, option, read
from ebar.config.terms import Term
from ebar.data.tokenisers import reading_of
from ebar.errors import UserError
from ebar.estimators import draws
from ebar.estimators.budget import Budget, budget_or_reason, mean_influence
from ebar.estimators.divergences import divergence
from ebar.estimators.log_z import log_z_of
from ebar.estimators.moments import moments_of
from ebar.features.feature import Features, bind
from ebar.maths.divergences import DIVERGENCES
from ebar.models.tilted import Tilted
from ebar.progress import shown
from ebar.samplers.draw import stream
from ebar.samplers.importance import Importance
from ebar.types import Estimate

MANUAL = Manual(
    command="estimate",
    purpose="log Z of a tilted model with the jackknife's bounds, the mean of each feature under the model and under "
    "the tilted model, and the divergence between the two, all with intervals and warnings.",
    example="ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --n 20000\n"
    "  ebar estimate runs/motif --tilt '!motif:10001011111000=-10' --sampler.kind look_ahead --n 2000",
    defaults={"sampler": Chosen(kind="importance")},
)


@dataclass(frozen=True, kw_only=True)
class EstimateConfig(Drawing, Truncation, Tilt, OfRun):
    """What to estimate."""

    n: Count = 10_000
    """Draws."""
    feature: tuple[Term, ...] = listed("KIND:ARGUMENT", lambda: "more features to average")
    divergence: tuple[str, ...] = listed(
        "NAME", lambda: f"of tilted from plain: {', '.join(sorted(DIVERGENCES))}", default=("kl",)
    )
    within: Amount | None = option(metavar="EPSILON")
    """Also say how many draws make log Z and the means known within ± EPSILON."""


def main(words: Sequence[str]) -> int:
    """log Z with its bounds, moments before and after, and how far the tilt moves the model."""
    arguments = read(words, MANUAL, EstimateConfig)
    if not arguments.tilt:
        raise UserError("There is nothing to estimate without an energy: give --tilt KIND:ARGUMENT=COEFFICIENT.")
    trained = load_trained(arguments.run)
    base = truncated(trained.model, arguments)
    reading = reading_of(trained.corpus.tokeniser, base.space)
    energy = read_energy(arguments.tilt, reading)
    target = Tilted(base, energy)
    sampler = build_sampler(arguments)
    if not sampler.weighted:
        raise UserError(
            f"The sampler {arguments.sampler.kind} gives draws without weights, which say nothing of Z: choose another."
        )
    more = [bind(read_feature(words), reading) for words in arguments.feature]
    features = Features([*energy.features.features, *more])
    coefficients = zip(energy.features.names, energy.coefficients.tolist(), strict=True)
    forbidden = {name for name, coefficient in coefficients if coefficient == -math.inf}
    generator = Generator(device=next(trained.model.parameters()).device).manual_seed(arguments.seed)
    with shown(not arguments.json):
        proposal = build_proposal(arguments, sampler, target, arguments.n, generator)
        plain_units = draws.read(Importance().stream(base, arguments.n, generator=generator), features=features)
        drawn = stream(sampler, target, arguments.n, proposal=proposal, generator=generator)
        units = draws.read(drawn, features=features)
        found = log_z_of(units)[0]
        figures: dict[str, Estimate | float | Budget | str] = {
            "log_z": found.estimate,
            "log_z_lower": found.lower,
            "log_z_upper": found.upper,
        }
        for name, before, after in zip(
            features.names, moments_of(plain_units, features)[0], moments_of(units, features)[0], strict=True
        ):
            figures[f"model: mean of {name}"] = before
            # What −∞ forbids has a mean of exactly 0, whether or not it was ever drawn.
            figures[f"tilted: mean of {name}"] = Estimate.exact(0.0) if name in forbidden else after
        if arguments.within is not None:
            known = {"log_z": mean_influence(units.log_weights[0])}
            for column, name in enumerate(features.names):
                influence = mean_influence(units.log_weights[0], units.values[0, :, column])
                known[f"tilted: mean of {name}"] = influence
            for name, influence in known.items():
                pilot = figures[name]
                assert isinstance(pilot, Estimate)
                figures[f"draws for {name}"] = budget_or_reason(pilot, influence, units.draws, within=arguments.within)
        for kind in arguments.divergence:
            figures[f"{kind} of tilted from model"] = divergence(
                kind, target, base, draws=arguments.n, proposal=proposal, generator=generator
            )[0]
    if arguments.json:
        show_json({name: one._asdict() if isinstance(one, Budget) else one for name, one in figures.items()})
    else:
        title = f"{arguments.run}: {arguments.sampler.kind}, {arguments.n:,} draws, seed {arguments.seed}"
        show_table(title, ("figure", "value"), list(figures.items()))
    return 0
