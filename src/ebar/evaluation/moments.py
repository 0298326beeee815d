"""Feature means: those of a language, exactly, and how far one set of them is from another."""

from collections.abc import Mapping

from ebar.automata.measures import expected_count, mean_length, probability
from ebar.automata.motif import ends_with, spell
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Feature, Features, Followed
from ebar.maths.importance import all_warnings
from ebar.types import Estimate

Moments = Mapping[str, float | Estimate]  # by the features' names


def true_moments(truth: ProbabilisticAutomaton, features: Features) -> dict[str, float]:
    """E_truth φ of each feature, by automata."""
    return {feature.name: true_moment(truth, feature) for feature in features.features}


def true_moment(truth: ProbabilisticAutomaton, feature: Feature) -> float:
    """The exact mean of a motif, an expression, a prefix, an n-gram count or the length; of others it is not known."""
    if isinstance(feature, Followed):
        return probability(truth, feature.automaton)
    if isinstance(feature, Length):
        return mean_length(truth)
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
