"""Exponential families over weighted points: p_λ(i) ∝ wᵢ·exp⟨λ, φᵢ⟩, and the λ at which E[φ] is as wanted.

The points are draws with their weights, or all sequences with their probabilities: the mathematics is the same.

How far data leave one coefficient of an exponential family open: the profile likelihood, its tails made right.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

FIRST_REACH = 10.0  # nats by which a first step may change a log-weight; doubled as long as steps of that length help
FARTHEST = 1e6  # |λ| times the feature's range: past it there is nothing but rounding
SAME = 1e-12  # a combination of features that varies no more than this, each on its own scale, is constant
FLAT = 1e-14  # a curvature this much below the largest is none


class Tilt(NamedTuple):
    """What there is to know of p_λ."""

    log_total: Float[Tensor, ""]  # log Σ wᵢ·exp⟨λ, φᵢ⟩
    moments: Float[Tensor, " features"]  # E[φ], the gradient of log_total
    covariance: Float[Tensor, "features features"]  # of φ, its Hessian
    probabilities: Float[Tensor, " points"]


class Match(NamedTuple):
    """The λ found, and how."""

    coefficients: Float[Tensor, " features"]
    moments: Float[Tensor, " features"]
    covariance: Float[Tensor, "features features"]  # of φ under p_λ
    iterations: int
    trace: tuple[float, ...]  # Σ|E[φ] − wanted| at the start and after each iteration
    converged: bool  # the gradient, prior included, is 0 in all directions in which points differ


def tilt(
    features: Float[Tensor, "points features"],
    log_weights: Float[Tensor, " points"],
    coefficients: Float[Tensor, " features"],
) -> Tilt:
    """p_λ at one λ. Exponents of any size: nothing leaves log space before it is normalised."""
    scores = log_weights + features @ coefficients
    log_total = torch.logsumexp(scores, 0)
    probabilities = torch.exp(scores - log_total)
    moments = probabilities @ features
    centred = features - moments
    return Tilt(log_total, moments, centred.T @ (probabilities[:, None] * centred), probabilities)


def match(
    features: Float[Tensor, "points features"],
    log_weights: Float[Tensor, " points"],
    wanted: Float[Tensor, " features"],
    *,
    ridge: float = 0.0,
    start: Float[Tensor, " features"] | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
) -> Match:
    """The maximum of ⟨λ, m⟩ − log Σ w·exp⟨λ, φ⟩ − ½ρ|λ|², which is concave: there m = E[φ] + ρλ.

    Newton's method; the Hessian is the covariance of φ. Steps are kept short enough for the quadratic to mean
    something and halved until they help. Along directions in which no two points differ λ stays where it was
    (constant features, combinations of collinear ones): no ridge is to throw it far off where no point objects.
    Wanted moments outside the points' convex hull, or on its rim, have no finite λ without a ridge: then λ runs until
    the gradient is too small to tell, or `converged` says no. `tolerance` is on the gradient along directions in
    which points differ, for features of range 1.
    """
    alive = log_weights > -math.inf
    if not bool(alive.any()):
        raise ValueError("no point has a positive weight")
    weights, points = log_weights[alive].double(), features[alive].double()
    # Centred, and to a spread of 1: Newton does not mind, rounding does.
    middle, spread = points.mean(0), points.std(0, unbiased=False)
    width = points.amax(0) - points.amin(0)
    scale = torch.where(width > 0, spread.clamp(min=1e-300), 1.0)
    points, goal, penalty = (points - middle) / scale, (wanted.double() - middle) / scale, ridge / scale.square()
    correlations, directions = torch.linalg.eigh(points.T @ points / len(points))
    directions = directions[:, correlations > SAME * len(goal)]
    current = torch.zeros_like(goal) if start is None else start.double() * scale

    def value_at(where: Tensor, log_total: Tensor) -> float:
        return float(where @ goal - log_total - 0.5 * (penalty * where.square()).sum())

    def uphill(where: Tensor, moments: Tensor) -> tuple[Tensor, float]:
        gradient = directions @ (directions.T @ (goal - moments - penalty * where))
        return gradient, float((gradient * scale / width.clamp(min=1e-300)).abs().max()) if len(goal) else 0.0

    now = tilt(points, weights, current)
    value, reach = value_at(current, now.log_total), FIRST_REACH
    gradient, steepness = uphill(current, now.moments)
    trace = [float(((goal - now.moments) * scale).abs().sum())]
    while steepness > tolerance and len(trace) <= max_iterations:
        curvature = directions.T @ (now.covariance + torch.diag(penalty)) @ directions
        step = directions @ (inverse(curvature) @ (directions.T @ gradient))
        longest = float((points @ step - now.moments @ step).abs().max())
        limited = longest > reach
        step = step * (reach / longest) if limited else step
        slope, rounding = float(gradient @ step), 1e-14 * (1 + abs(value))
        size, better = 1.0, False
        while not better and slope > rounding**2 and size > 1e-9:
            there = current + size * step
            then = tilt(points, weights, there)
            after = value_at(there, then.log_total)
            onward, flatness = uphill(there, then.moments)
            # Near the top the value no longer tells in rounding, and the gradient does.
            better = after >= value + 1e-4 * size * slope or (after >= value - rounding and flatness < steepness)
            size /= 2
        if not better or float((there / scale * width).abs().max()) > FARTHEST:
            break
        reach = 2 * reach if limited and size == 0.5 else max(FIRST_REACH, 2 * size * reach)
        current, now, value, gradient, steepness = there, then, after, onward, flatness
        trace.append(float(((goal - now.moments) * scale).abs().sum()))
    return Match(
        current / scale,
        now.moments * scale + middle,
        now.covariance * scale * scale[:, None],
        len(trace) - 1,
        tuple(trace),
        steepness <= tolerance,
    )


def inverse(matrix: Float[Tensor, "features features"]) -> Float[Tensor, "features features"]:
    """Of a positive semi-definite matrix, on the directions in which it is not flat; 0 along the others.

    Each feature is first brought to its own scale, or one of a wide range would make all others look flat.
    """
    scale = matrix.diagonal().clamp(min=0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    values, vectors = torch.linalg.eigh(matrix / scale / scale[:, None])
    if len(values) == 0:
        return matrix
    steep = values > FLAT * len(values) * values.max().clamp(min=1e-300)
    inverses = torch.where(steep, 1 / torch.where(steep, values, 1.0), 0.0)
    inverted: Tensor = (vectors * inverses) @ vectors.T / scale / scale[:, None]
    return inverted


PRECISION = 1e-3  # of an end, relative to its distance from the maximum
LEAST = 0.1  # |r| below which log(u/r)/r is rounding, and no end lies
SETTLED = 1e-7  # a rise of the log-likelihood that is none
NEARBY = 0.1  # nats that a step promises, above which a plain one may overshoot
PLAIN = 8  # plain steps of Newton
DOUBLINGS = 60  # of a distance, before there is no end


class Distances(NamedTuple):
    """From the maximum to either end of an interval."""

    below: float
    above: float


def distances(
    features: Float[Tensor, "points features"],
    log_weights: Float[Tensor, " points"],
    wanted: Float[Tensor, " features"],
    column: int,
    *,
    size: int,
    ridge: float = 0.0,
    level: float = 0.95,
    start: Float[Tensor, " features"] | None = None,
) -> Distances:
    """Of λⱼ at which p_λ has the mean φ of `size` data as its moments, if the data are draws of p_λ.

    λⱼ = t is inside as long as data so far out, or farther, are no rarer than (1 − level)/2 under it. That tail is
    1 − Φ(r*), r* = r + log(u/r)/r (Barndorff-Nielsen 1986; for canonical parameters Davison 1988), with

        r² = 2|D|·(ℓ(λ̂) − max over λ with λⱼ = t of ℓ(λ)),     u = (λ̂ⱼ − t)·√(|D|·det Σ(λ̂)/det Σ₍₋ⱼ₎(λ̃ₜ))

    whose error falls as |D|^−3/2, and which is good down to one datum. The variance is p_λ's own, so that data that
    happen to be all alike, or of which there is one, are no reason for certainty. For a binary feature the tail is
    that of the binomial with half of the datum's own chance (mid-P); Wald's interval λ̂ ± 1.96/√(|D|·σ²) is the first
    term of it. No end lies beyond the bound of Chernoff, exp(−r²/2) = (1 − level)/2.
    The wanted moments must lie inside of what the points show: at its rim there is no λ̂.
    """
    from scipy.special import ndtri

    points, weights = _distinct(features.double(), log_weights.double())
    profile = _Profile(points, weights, wanted.double(), column, size, ridge, start)
    quantile, farthest = float(ndtri((1 + level) / 2)), math.sqrt(-2 * math.log((1 - level) / 2))
    return Distances(*(_end(profile, sign, quantile, farthest) for sign in (-1, 1)))


def _end(profile: "_Profile", sign: int, quantile: float, farthest: float) -> float:
    """Where r* meets the normal quantile, or r the bound of Chernoff, whichever is nearer."""
    from scipy.optimize import brentq

    def beyond(distance: float) -> float:
        root, standard = profile.roots(sign * distance)
        adjusted = root + math.log(standard / root) / root if root > LEAST else 0.0
        return max(adjusted - quantile, root - farthest)

    reach = quantile * profile.scale
    for _ in range(DOUBLINGS):
        if beyond(reach) >= 0:
            return float(brentq(beyond, 0.0, reach, xtol=PRECISION * profile.scale, rtol=PRECISION))
        reach *= 2
    return math.inf


class _Profile:
    """ℓ with one coefficient held at its maximum plus a distance, the others at their best."""

    def __init__(
        self,
        points: Float[Tensor, "points features"],
        log_weights: Float[Tensor, " points"],
        wanted: Float[Tensor, " features"],
        column: int,
        size: int,
        ridge: float,
        start: Float[Tensor, " features"] | None,
    ):
        self.others = torch.arange(len(wanted)) != column
        self.points, self.log_weights, self.wanted, self.column = points, log_weights, wanted, column
        self.size, self.ridge = size, ridge
        self.top = match(points, log_weights, wanted, ridge=ridge, start=start).coefficients
        self.value, self.log_determinant, log_others, _ = self._at(self.top)
        self.scale = math.exp((log_others - self.log_determinant) / 2) / math.sqrt(size)  # Wald's standard error
        self.known = {0.0: self.top}

    def roots(self, distance: float) -> tuple[float, float]:
        """|r| and |u|."""
        begun = self.known[min(self.known, key=lambda known: abs(known - distance))]
        coefficients = self._best(float(self.top[self.column]) + distance, begun)
        self.known[distance] = coefficients
        value, _, log_others, _ = self._at(coefficients)
        root = math.sqrt(max(2 * self.size * (self.value - value), 0.0))
        return root, abs(distance) * math.sqrt(self.size) * math.exp((self.log_determinant - log_others) / 2)

    def _best(self, held: float, begun: Float[Tensor, " features"]) -> Float[Tensor, " features"]:
        """The others at their best: from nearby a few plain steps of Newton do, from farther away the careful ones."""
        now, before = torch.where(self.others, begun, held), NEARBY
        for _ in range(PLAIN):
            step, rise = self._at(now)[3]
            if not 0 <= rise < before:
                break
            if self.size * rise < SETTLED:
                return now
            before = rise
            now = now.masked_scatter(self.others, now[self.others] + step)
        found = match(
            self.points[:, self.others],
            self.log_weights + held * self.points[:, self.column],
            self.wanted[self.others],
            ridge=self.ridge,
            start=begun[self.others],
        )
        return now.masked_scatter(self.others, found.coefficients)

    def _at(self, coefficients: Float[Tensor, " features"]) -> tuple[float, float, float, tuple[Tensor, float]]:
        """ℓ, log det Σ, that of the other features, and their step of Newton with the rise it promises."""
        state = tilt(self.points, self.log_weights, coefficients)
        penalty = 0.5 * self.ridge * coefficients.square().sum()
        hessian = state.covariance + self.ridge * torch.eye(len(coefficients), dtype=torch.float64)
        value = coefficients @ self.wanted - state.log_total - penalty
        others = hessian[self.others][:, self.others]
        gradient = (self.wanted - state.moments - self.ridge * coefficients)[self.others]
        step = torch.linalg.lstsq(others, gradient[:, None]).solution[:, 0] if len(gradient) else gradient
        rise = float(gradient @ step)
        return float(value), float(hessian.logdet()), float(others.logdet()), (step, rise)


def _distinct(
    points: Float[Tensor, "points features"], log_weights: Float[Tensor, " points"]
) -> tuple[Float[Tensor, "distinct features"], Float[Tensor, " distinct"]]:
    """Each vector of features once, with all of its weight: many draws of binary features are a few points."""
    alive = log_weights > -math.inf
    kept, place = torch.unique(points[alive], dim=0, return_inverse=True)
    largest = log_weights[alive].max()
    total = torch.zeros(len(kept), dtype=torch.float64).index_add(0, place, torch.exp(log_weights[alive] - largest))
    return kept, total.log() + largest
