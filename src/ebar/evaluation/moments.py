"""Means of features over draws and data, and how far they are from the truth."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.measures import expected_count, probability
from ebar.automata.measures import mean_length as expected_length
from ebar.automata.motif import ends_with, spell
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.evaluation.means import plain_mean, plain_share
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Feature, Features, Followed
from ebar.maths.importance import all_warnings, unseen_side
from ebar.types import Context, Estimate, Sequences

Moments = Mapping[str, float | Estimate]  # by the features' names


def true_moments(truth: ProbabilisticAutomaton, features: Features) -> dict[str, float]:
    """E_truth φ of each feature, by automata."""
    return {feature.name: true_moment(truth, feature) for feature in features.features}


def true_moment(truth: ProbabilisticAutomaton, feature: Feature) -> float:
    """The exact mean of a motif, an expression, a prefix, an n-gram count or the length; of others it is not known."""
    if isinstance(feature, Followed):
        return probability(truth, feature.automaton)
    if isinstance(feature, Length):
        return expected_length(truth)
    if isinstance(feature, NgramCount) and feature.alphabet is not None:
        return expected_count(truth, ends_with(spell(feature.ngram, feature.alphabet), len(feature.alphabet)))
    raise UserError(
        f"No automaton follows the feature {feature.name!r}, so its exact mean is not known: "
        "estimate it from a sample of the language."
    )


def moment_distance(one: Moments, other: Moments) -> Estimate:
    """ℓ1_mom = Σᵢ |E φᵢ − E′ φᵢ| between the moments of data, a model or the truth. Parshakova et al. 2019, equation 6.

    The interval takes every mean to the far end of its own at once: right when all errors go together, too wide
    otherwise, and as wide below as the distance allows where a difference may be zero.
    """
    if one.keys() != other.keys():
        raise ValueError(f"the two sets of moments are of different features: {list(one)} and {list(other)}")
    pairs = [(_estimate(mean), _estimate(other[name])) for name, mean in one.items()]
    means = [mean for pair in pairs for mean in pair]
    levels = {mean.level for mean in means if not mean.is_exact}
    if len(levels) > 1:
        raise ValueError(f"the moments have intervals of different levels: {sorted(levels)}")
    value = low = high = 0.0
    for a, b in pairs:
        value += abs(a.value - b.value)
        low += max(a.low - b.high, b.low - a.high, 0.0)
        high += max(a.high - b.low, b.high - a.low)
    size = min((mean.effective_sample_size for mean in means), default=float("inf"))
    warning = all_warnings(*(mean.warning for mean in means))
    return Estimate(value, low, high, size, warning, *levels)


def _estimate(mean: float | Estimate) -> Estimate:
    return mean if isinstance(mean, Estimate) else Estimate.exact(mean)


@torch.no_grad()
def frequencies(
    x: Sequences, features: Features, *, context: Context | None = None, level: float = 0.95
) -> dict[str, Estimate]:
    """The mean of each feature over the sequences: Wilson's interval where it is 0 or 1, the jackknife's otherwise."""
    values = features(x, context).double()
    found = {}
    for feature, column in zip(features.features, values.unbind(1), strict=True):
        if bool(((column == 0) | (column == 1)).all()) and (feature.low, feature.high) == (0, 1):
            found[feature.name] = frequency(column, name=feature.name, level=level)
        else:
            low, high = float(feature.low), float(feature.high)
            found[feature.name] = plain_mean(column, low=low, high=high, name=feature.name, level=level)
    return found


def frequency(holds: Float[Tensor, " batch"], *, name: str = "feature", level: float = 0.95) -> Estimate:
    """The share of ones among zeros and ones."""
    warning = unseen_side(name, float(holds.min()), float(holds.max()), 0.0, 1.0)
    return plain_share(float(holds.sum()), float(len(holds)), level=level)._replace(warning=warning)


def mean_length(x: Sequences, *, level: float = 0.95) -> Estimate:
    """The mean number of tokens, the end included."""
    return plain_mean(x.lengths.double(), low=0.0, name="length", level=level)
