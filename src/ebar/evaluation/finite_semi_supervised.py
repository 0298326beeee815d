"""Semi-supervised learning with a fake class, on finite spaces: what its propositions say, point by point.

The discriminator has a logit for each of K classes, the fake class being fixed at 0 (Dai 2019 (thesis), C.3; Dai et al.
2017b, arXiv:1705.09783):

    J = E_labelled log P(y | x, y ≤ K) + E_data log P(y ≤ K | x) + E_generated log P(K+1 | x)        (C.1)

With LSE the log-sum of a point's logits, P(y ≤ K | x) = σ(LSE) and P(y | x, y ≤ K) is the softmax over classes: the two
have no number in common. Where every logit is free, J therefore falls into the supervised objective and a binary one,
and says nothing of the classes of unlabelled points, whatever is generated (`twin`; Proposition 4 is the case p_G = p).
What makes a complement generator useful is that logits are linear in features (`FeatureSpace`; Proposition 5).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

Logits = Float[Tensor, "points classes"]
Masses = Float[Tensor, " points"]
Weights = Float[Tensor, "classes dimensions"]
ManyWeights = Float[Tensor, "many classes dimensions"]
Features = Float[Tensor, "_points dimensions"]  # several sets of points meet in one signature


# A free logit for each point and class -----------------------------------------------------------------------------


def supervised_objective(logits: Logits, labelled: Logits) -> Float[Tensor, ""]:
    """E log P(y | x, y ≤ K) over labelled pairs, whose masses are given (C.2). Logits may be −∞."""
    return _expected(labelled, logits.log_softmax(1))


def fake_class_objective(logits: Logits, labelled: Logits, data: Masses, generated: Masses) -> Float[Tensor, ""]:
    """All three terms of (C.1), to be maximised."""
    total = logits.logsumexp(1)
    binary = _expected(data, F.logsigmoid(total)) + _expected(generated, F.logsigmoid(-total))
    return supervised_objective(logits, labelled) + binary


def supervised_maximum(labelled: Logits) -> Float[Tensor, ""]:
    """−H(y | x) of the labelled pairs: reached where the softmax over classes is their conditional distribution."""
    return _expected(labelled, labelled.log() - labelled.sum(1, keepdim=True).log())


def fake_class_maximum(labelled: Logits, data: Masses, generated: Masses) -> Float[Tensor, ""]:
    """The supervised maximum, and 2·JS(p, p_G) − 2·log 2 of the optimum P(K+1 | x) = p_G / (p + p_G).

    The thesis (C.4) has p in this numerator, which is the chance of not being fake.
    """
    both = (data + generated).log()
    binary = _expected(data, data.log() - both) + _expected(generated, generated.log() - both)
    return supervised_maximum(labelled) + binary


def twin(logits: Logits, data: Masses | None = None, generated: Masses | None = None) -> Logits:
    """Logits with the same P(y | x, y ≤ K) everywhere that maximise the binary part of (C.1): log-softmax + log p/p_G.

    Those of a maximum of the supervised objective become a maximum of (C.1), with the same error on unseen points,
    however large. Without masses p_G = p, and each point has exp-sum 1, hence P(K+1 | x) = ½ (Proposition 4, C.6). For
    p_G ≠ p the thesis has no such statement; it holds all the same wherever both have mass.
    """
    found = logits.log_softmax(1)
    if data is None or generated is None:
        return found
    if bool(((data > 0) != (generated > 0)).any()):
        raise ValueError("a point with mass under one of p and p_G only has its optimum at infinity")
    ratio = torch.where(data > 0, data.log() - generated.log(), 0.0)
    return found + ratio[:, None]


def error_rate(logits: Logits, truth: Logits) -> Float[Tensor, ""]:
    """The chance of a pair, whose masses are given, to have another label than the largest logit; ties are errors."""
    best = logits == logits.max(1, keepdim=True).values
    right = best & (best.sum(1, keepdim=True) == 1)
    return truth.sum() - truth[right].sum()


def _expected(masses: Tensor, values: Tensor) -> Float[Tensor, ""]:
    """Σ mass·value, where 0·(−∞) is 0."""
    return (masses * torch.where(masses > 0, values, 0.0)).sum()


# Logits linear in features -----------------------------------------------------------------------------------------


class Cover(NamedTuple):
    """Lemma 2: logits on the generator's support lie below C·ε where generated points have negative ones."""

    radius: float  # ε: each point of the support has a generated one at most so far away
    norm: float  # C: the largest norm of a class's weights
    largest: float  # the largest logit of a class on the support

    @property
    def bound(self) -> float:
        return self.norm * self.radius


def cover(weights: Weights, support: Features, generated: Features) -> Cover:
    """How well generated points cover the generator's support, and what Lemma 2 makes of it.

    The bound holds where every logit of every generated point is negative. With ever more points the radius falls to 0
    and the bound with it (Corollary 2): no class is believed in anywhere on the support.
    """
    radius = torch.cdist(support, generated).min(1).values.max()
    return Cover(float(radius), float(weights.norm(dim=1).max()), float((support @ weights.T).max()))


class Conditions(NamedTuple):
    """Assumption 1: what a discriminator has learnt when it has converged on its finite training set."""

    labelled: Bool[Tensor, " many"]  # (1) the logit of its label is the largest, at each labelled point
    generated: Bool[Tensor, " many"]  # (2) all logits are negative, at each generated point
    unlabelled: Bool[Tensor, " many"]  # (3) the largest logit is positive, at each unlabelled point


@dataclass(frozen=True, slots=True)
class FeatureSpace:
    """Finite sets of features: F₁ … F_K, labelled points of each, and what is generated.

    All points of F₁ … F_K are unlabelled data. The fake logit is 0 and a class's logit is w·f without a bias: a
    constant coordinate of f gives it one.
    """

    classes: Sequence[Features]
    labelled: Sequence[Features]
    generated: Features

    def conditions(self, weights: ManyWeights) -> Conditions:
        """Which parts of Assumption 1 hold, for each discriminator."""
        unlabelled = torch.cat(list(self.classes))
        return Conditions(
            _ranked_first(weights, self.labelled),
            (_logits(weights, self.generated) < 0).flatten(1).all(1),
            (_logits(weights, unlabelled).amax(1) > 0).all(1),
        )

    def correct(self, weights: ManyWeights) -> Bool[Tensor, " many"]:
        """What Proposition 5 concludes: at every point of every F_k the logit of k is the largest."""
        return _ranked_first(weights, self.classes)

    def separated(self) -> bool:
        """Whether a generated point lies on each segment from a point of F_k to a labelled point of F_j, j ≠ k.

        This is all that the proof takes from F_k that are disjoint with a margin, lie in a convex set and have a
        labelled point each, and from a generator that fills the rest of that set.
        """
        for own, other in itertools.permutations(range(len(self.classes)), 2):
            ends = itertools.product(self.classes[own], self.labelled[other])
            if len(self.labelled[other]) == 0 or not all(_between(self.generated, *pair) for pair in ends):
                return False
        return True

    def discriminators(self, candidates: Features, *, drop: str | None = None) -> ManyWeights:
        """Every choice of one candidate for each class that meets Assumption 1, but for the condition to `drop`.

        Proposition 5 says that they are all correct where the space is `separated` and no condition is dropped.
        """
        if drop is not None and drop not in Conditions._fields:
            raise ValueError(f"the conditions are {', '.join(Conditions._fields)}, not {drop}")
        if drop != "generated":  # a condition on each class alone, which leaves fewer to combine
            candidates = candidates[(candidates @ self.generated.T < 0).all(1)]
        numbers = torch.arange(len(candidates))
        chosen = candidates[torch.cartesian_prod(*[numbers] * len(self.classes)).view(-1, len(self.classes))]
        met = [holds for name, holds in self.conditions(chosen)._asdict().items() if name != drop]
        return chosen[torch.stack(met).all(0)]


def _logits(weights: ManyWeights, features: Features) -> Float[Tensor, "many classes points"]:
    return weights @ features.T


def _ranked_first(weights: ManyWeights, classes: Sequence[Features]) -> Bool[Tensor, " many"]:
    """Whether at all points of each class its own logit is above the others."""
    right = torch.ones(len(weights), dtype=torch.bool)
    for label, points in enumerate(classes):
        logits = _logits(weights, points)
        others = torch.cat([logits[:, :label], logits[:, label + 1 :]], 1)
        right &= (logits[:, label, None] > others).flatten(1).all(1)
    return right


def _between(points: Features, start: Float[Tensor, " dimensions"], end: Float[Tensor, " dimensions"]) -> bool:
    """Whether one of the points lies strictly inside a segment, to rounding."""
    step = end - start
    along = (points - start) @ step / step.square().sum()
    beside = (points - start - along[:, None] * step).abs().amax(1)
    return bool(((along > 0) & (along < 1) & (beside < 1e-9)).any())
