"""What an energy makes of a model: log Z, moments and divergences, with intervals."""

import math
from collections.abc import Sequence

from torch import Generator

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import draws
from ebar.estimators.divergences import divergence
from ebar.estimators.effective_samples import Budget, budget_or_reason, mean_influence
from ebar.estimators.log_z import log_z_of
from ebar.estimators.moments import moments_of
from ebar.features.feature import Feature, Features
from ebar.maths.randomness import default_generator
from ebar.models.tilted import Tilted, bound_features
from ebar.samplers.draw import stream
from ebar.samplers.importance import Importance
from ebar.types import Distribution, Estimate, Sampler

Figure = Estimate | float | Budget | str


def estimate(
    target: Tilted,
    n: int = 10_000,
    *,
    features: Sequence[Feature] = (),
    sampler: Sampler = Importance(),  # noqa: B008 — immutable
    proposal: Distribution | None = None,
    divergences: Sequence[str] = ("kl",),
    within: float | None = None,
    generator: Generator | None = None,
) -> dict[str, Figure]:
    """log Z with the jackknife's bounds; the mean of the energy's features and of `features` under the base and
    under p = P/Z; how far p is from the base. With `within`, also how many draws would make log Z and the means known
    within ± that.
    """
    if not sampler.weighted:
        raise UserError(
            f"The sampler {type(sampler).__name__} gives draws without weights, which say nothing of Z: choose another."
        )
    generator = default_generator() if generator is None else generator
    own: list[Feature] = []
    forbidden: set[str] = set()
    if isinstance(target.energy, Linear):
        own = list(target.energy.features.features)
        coefficients = zip(target.energy.features.names, target.energy.coefficients.tolist(), strict=True)
        forbidden = {name for name, coefficient in coefficients if coefficient == -math.inf}
    all_features = Features([*own, *bound_features(features, target).features])
    plain = draws.read_units(Importance().stream(target.base, n, generator=generator), features=all_features)
    units = draws.read_units(stream(sampler, target, n, proposal=proposal, generator=generator), features=all_features)
    found = log_z_of(units)[0]
    figures: dict[str, Figure] = {
        "log_z": found.estimate,
        "log_z_lower": found.lower,
        "log_z_upper": found.upper,
    }
    means = moments_of(plain, all_features)[0], moments_of(units, all_features)[0]
    for name, before, after in zip(all_features.names, *means, strict=True):
        figures[f"model: mean of {name}"] = before
        # What −∞ forbids has a mean of exactly 0, whether or not it was ever drawn.
        figures[f"tilted: mean of {name}"] = Estimate.exact(0.0) if name in forbidden else after
    if within is not None:
        known = {"log_z": mean_influence(units.log_weights[0])}
        for column, name in enumerate(all_features.names):
            known[f"tilted: mean of {name}"] = mean_influence(units.log_weights[0], units.values[0, :, column])
        for name, influence in known.items():
            pilot = figures[name]
            assert isinstance(pilot, Estimate)
            figures[f"draws for {name}"] = budget_or_reason(pilot, influence, units.draws, within=within)
    for kind in divergences:
        figures[f"{kind} of tilted from model"] = divergence(
            kind, target, target.base, draws=n, proposal=proposal, generator=generator
        )[0]
    return figures
