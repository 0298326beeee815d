"""What π learns from by policy gradient, and what is measured of it while it learns.

Measured are how near π is to p, how far from q, and whether it has arrived.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator

from ebar.estimators.divergences import kl_from_model, kl_to_model
from ebar.estimators.exact import device_of
from ebar.estimators.moments import means_by_name
from ebar.evaluation.diversity import unique_ratios
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.report import MODEL, TARGET
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, propose, score
from ebar.objectives import PolicyGradient
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws
from ebar.store.writing import from_plain
from ebar.training.stopping import Best
from ebar.training.train import History
from ebar.types import Distribution, Estimate, Sequences


def policy_gradient(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Any, ahead: Guided | None
) -> PolicyGradient:
    """A baseline is unbiased only where draws can be anything that π can make: a proposal that looks ahead never goes
    where it is forbidden. π itself, once it is the proposal, goes there, and what it must not make pushes it away: near
    p that has far less variance than the likelihood of p's texts.
    """
    forbids = any(one.pointwise for one in constraints)
    proposals: dict[str, Distribution | None] = {"look_ahead": ahead, "model": target.base, "policy": None}
    return PolicyGradient(
        target=target,
        model=policy,
        proposal=proposals[tuning.proposal],
        divergence=tuning.divergence,
        baseline="once_replaced" if forbids and tuning.proposal == "look_ahead" else "automatic",
        replace=tuning.replace and tuning.proposal != "policy",
    )


ORDERS = (1, 2)  # of n-grams
FALLEN = 0.5  # of the best effective size so far, below which draws have lost sight of p
# Fields of an estimate, and what stands behind its name in a line of metrics.
ENDS = {"value": "", "low": " low", "high": " high", "effective_sample_size": " effective_sample_size"}
Figures = dict[str, Estimate]


@torch.no_grad()
def tuning_figures(
    policy: Any, target: Tilted, constraints: Constraints, drawn: ScoredDraws,
    text: Callable[[Sequences], list[str]], *, rows: int, seed: int, draws: int | None = None,
) -> tuple[Figures, list[str]]:  # fmt: skip
    """KL(p‖π) on given draws; KL(π‖q), moments and distinct n-grams on `draws` fresh ones of π; and these as text."""
    n, features = len(drawn.log_g), constraints.features
    places = [torch.arange(start, min(start + rows, n)) for start in range(0, n, rows)]
    log_policy = torch.cat([policy.log_prob(drawn.x.select(place)).double().cpu() for place in places])
    generator = Generator(device=device_of(target.base)).manual_seed(folded(seed, "judge"))
    parts = [propose(policy, size, None, generator) for size in shares(draws or n, None, rows)]
    log_q = torch.cat([score(target.base, x).double().cpu() for x, _ in parts])
    log_own = torch.cat([log_prob.double().cpu() for _, log_prob in parts])
    x = Sequences.join([part for part, _ in parts])
    texts = text(x)
    found = {TARGET: kl_to_model(drawn.log_weights, drawn.log_g, log_policy), MODEL: kl_from_model(log_own, log_q)}
    means = means_by_name(features(x).double().cpu(), features)
    found |= {f"mean of {name}": one for name, one in means.items()}
    return found | {f"distinct-{order}": _distinct(texts, order) for order in ORDERS}, texts


def arrived(figures: Figures, constraints: Constraints, tolerance: float) -> bool:
    """Whether the interval of every moment of π comes within the tolerance of what was asked."""
    for one in constraints:
        found = figures[f"mean of {one.feature.name}"]
        if not found.low - tolerance <= one.moment <= found.high + tolerance:  # NaN has not arrived
            return False
    return True


def has_fallen(history: History, every: int) -> bool:
    """Whether the draws of the last `every` steps are worth less than half of what those of earlier ones were.

    Where π is its own proposal, it has then left out part of p.
    """
    sizes = [value for line in history for name, value in line.items() if name.endswith("effective_sample_size")
             and not name.startswith("validation.")]  # fmt: skip
    parts = [sizes[start : start + every] for start in range(0, len(sizes), every)]
    means = [sum(part) / len(part) for part in parts]
    return len(means) > 1 and means[-1] < FALLEN * max(means[:-1])


def kept(figures: Mapping[int, Figures], constraints: Constraints, tolerance: float | None) -> int:
    """The step whose π is kept: the nearest to p of those that have arrived or, where none has, of all."""
    there = {
        step: one for step, one in figures.items() if tolerance is not None and arrived(one, constraints, tolerance)
    }
    return nearest(there or figures)


def nearest(figures: Mapping[int, Figures]) -> int:
    """The step at which π was nearest to p, the first of several: q itself is a candidate, NaN is none."""
    best = Best()
    for step, one in figures.items():
        best = best.update(one[TARGET].value, step)
    return max(figures) if best.step is None else best.step


def _distinct(texts: list[str], order: int) -> Estimate:
    """Different n-grams of words, as a share of all."""
    if all(len(text.split()) < order for text in texts):
        return Estimate(math.nan, 0.0, 1.0, 0.0, f"no text has {order} words")
    return unique_ratios({"π": texts}, orders=[order])["π"][order].pooled


def numbers_of(figures: Figures) -> dict[str, float]:
    """A line of metrics holds numbers only: the ends of an interval beside its middle."""
    return {f"{name}{words}": float(getattr(one, end)) for name, one in figures.items() for end, words in ENDS.items()}


def evaluations(history: History, names: Figures) -> dict[int, Figures]:
    """The figures that `numbers_of` wrote, by step."""
    return {
        int(line["step"]): {
            name: from_plain(Estimate, {end: line[f"validation.{name}{words}"] for end, words in ENDS.items()})
            for name in names
        }
        for line in history
        if f"validation.{TARGET}" in line
    }
