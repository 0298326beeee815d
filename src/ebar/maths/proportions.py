"""Intervals for how often something happens."""

import math


def wilson(successes: float, trials: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927): honest for rare events too, and never outside [0, 1].

    (p̂ + z²/2n ± z·√(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n).
    """
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    share, inverse = successes / trials, z * z / trials
    centre = share + inverse / 2
    spread = z * math.sqrt(share * (1 - share) / trials + inverse / (4 * trials))
    low = 0.0 if successes == 0 else (centre - spread) / (1 + inverse)
    high = 1.0 if successes == trials else (centre + spread) / (1 + inverse)
    return low, high
