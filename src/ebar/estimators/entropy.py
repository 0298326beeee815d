"""H(p) = −E_p[log p], for a model of any kind."""

import math

import torch
from torch import Generator

from ebar.automata import measures
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.estimators import exact
from ebar.estimators.comparison import draw_comparison, source_of
from ebar.estimators.models import Model, is_enumerable
from ebar.maths.importance import all_warnings, diagnose
from ebar.maths.jackknife import half_width, log_rest
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.maths.randomness import default_generator
from ebar.types import Context, Estimate


@torch.no_grad()
def entropy(
    model: Model,
    *,
    context: Context | None = None,
    draws: int = 10_000,
    generator: Generator | None = None,
    level: float = 0.95,
) -> list[Estimate]:
    """H(p|C) in nats for each row of the context: exact for automata and on small spaces, else by sampling.

    Of a tilted model, H = log Z − E_p[log P], both from the same draws of its base.
    """
    if isinstance(model, ProbabilisticAutomaton):
        return [Estimate.exact(measures.entropy(model))]
    if is_enumerable(model):
        return [Estimate.exact(value) for value in exact.entropy(model, context).tolist()]
    generator = default_generator() if generator is None else generator
    source = source_of(model)
    pool = draw_comparison([source], (model, source), draws, context=context, generator=generator)
    log_weights = pool.log_first
    log_total = log_mean_exp(log_weights)[:, None]
    log_p = torch.where(log_weights == -math.inf, 0.0, log_weights + pool.log_reference - log_total)
    ratios = torch.exp(log_weights - log_total)
    values = -(ratios * log_p).mean(-1)
    # Draw i moves log Z by aᵢ − 1 and E_p[log P] by aᵢ·(log Pᵢ − E_p[log P]).
    influence = (ratios - 1) - ratios * (log_p + values[:, None])
    widths = half_width(influence / draws / log_rest(log_weights).exp(), level)
    sizes = effective_sample_size(log_weights)
    warnings = [all_warnings(*pair) for pair in zip(diagnose(log_weights), pool.unseen, strict=True)]
    return [
        # Where nothing was drawn the value is NaN, and every entropy remains possible.
        Estimate(value, max(0.0, value - width), value + width if size > 0 else math.inf, size, warning, level)
        for value, width, size, warning in zip(values.tolist(), widths.tolist(), sizes.tolist(), warnings, strict=True)
    ]
