"""What the verdicts of a discriminator say of generated text: rates with exact intervals, and paired differences."""

import math
from typing import NamedTuple

from jaxtyping import Bool
from torch import Tensor

from ebar.evaluation.ratings import coin_p_value, exact_share
from ebar.types import Estimate

FEWEST_CONTEXTS = 30  # to judge: below, a rate says little, however exact its interval


class Verdict(NamedTuple):
    """What one discriminator made of one system's text; real is what has an energy below 0."""

    accuracy: Estimate
    false_positive_rate: Estimate  # generated texts taken for real: how often it was fooled
    true_positive_rate: Estimate  # real texts taken for real


class Compared(NamedTuple):
    """Both systems, judged on the same contexts."""

    base: Verdict
    joint: Verdict
    difference: Estimate  # the joint model's false positive rate minus q's
    p_value: float  # McNemar's exact test that there is none


Decisions = tuple[Bool[Tensor, " contexts"], Bool[Tensor, " contexts"]]
"""Whether the real and the generated text of each context were taken for real."""


def compared(base: Decisions, joint: Decisions, *, level: float = 0.95) -> Compared:
    """From decisions on the same contexts."""
    fooled_once, fooled_other = joint[1], base[1]
    difference = paired_difference(fooled_once, fooled_other, level=level)
    only_joint = int((fooled_once & ~fooled_other).sum())
    only_base = int((fooled_other & ~fooled_once).sum())
    p_value = coin_p_value(only_joint, only_base)
    return Compared(verdict(*base, level=level), verdict(*joint, level=level), difference, p_value)


def verdict(real: Bool[Tensor, " contexts"], generated: Bool[Tensor, " contexts"], *, level: float = 0.95) -> Verdict:
    """Rates have exact binomial intervals. The two decisions on one context are no independent trials, so accuracy,
    (1 + P(real taken for real) − P(generated taken for real)) / 2, has that of the paired difference.
    """
    gap = paired_difference(real, generated, level=level)
    value, low, high = ((1 + end) / 2 for end in gap[:3])
    return Verdict(gap._replace(value=value, low=low, high=high), _rate(generated, level), _rate(real, level))


def paired_difference(one: Bool[Tensor, " pairs"], other: Bool[Tensor, " pairs"], *, level: float = 0.95) -> Estimate:
    """P(one) − P(other) of outcomes that come in pairs.

    Wald's interval with half an outcome added to each of the four cells (Agresti & Min 2005): it has a width even
    where no pair disagrees.
    """
    from scipy.special import ndtri

    pairs = len(one)
    more, less = int((one & ~other).sum()), int((other & ~one).sum())
    first, second = (more + 0.5) / (pairs + 2), (less + 0.5) / (pairs + 2)
    centre = first - second
    width = float(ndtri((1 + level) / 2)) * math.sqrt((first + second - centre**2) / (pairs + 2))
    low, high = max(-1.0, centre - width), min(1.0, centre + width)
    return Estimate((more - less) / pairs, low, high, float(pairs), _few(pairs), level)


def _rate(outcomes: Bool[Tensor, " contexts"], level: float) -> Estimate:
    found = exact_share(int(outcomes.sum()), len(outcomes), level=level)
    return found._replace(warning=_few(len(outcomes)))


def _few(contexts: int) -> str | None:
    return None if contexts >= FEWEST_CONTEXTS else f"{contexts} contexts are few to judge by"
