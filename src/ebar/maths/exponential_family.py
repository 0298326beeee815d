"""Exponential families over weighted points: p_λ(i) ∝ wᵢ·exp⟨λ, φᵢ⟩, and the λ at which E[φ] is as wanted.

The points are draws with their weights, or all sequences with their probabilities: the mathematics is the same.
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
        step = directions @ solve(curvature, directions.T @ gradient)
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


def solve(matrix: Float[Tensor, "features features"], vector: Float[Tensor, " features"]) -> Float[Tensor, " features"]:
    """`inverse`(matrix) @ vector."""
    return inverse(matrix) @ vector
