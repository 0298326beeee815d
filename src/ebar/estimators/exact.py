"""The truth, by enumeration: what every estimate is held against, in value and in gradient.

Everything here is differentiable in the model's parameters, so that each estimator's gradient has an exact twin:
∂ log Z/∂λ = E_p[φ] (Parshakova et al. 2019, equation 5) comes out of autograd. One value per row of the context.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.errors import UserError, choose
from ebar.features.feature import Features
from ebar.maths import divergences
from ebar.maths.enumeration import all_sequences, has_at_most
from ebar.models.tilted import Tilted, score
from ebar.modes import in_evaluation_mode
from ebar.types import Context, Distribution, PointSpace, Scored, Sequences, Space, X, context_rows

Model = Distribution[X, Any] | Scored[X]  # tabular, automaton and autoregressive are distributions; tilted is scored

ENUMERABLE = 100_000  # sequences: above, estimators sample


def common_space(*models: Model) -> Space:
    """The sequences of all these models: where they differ in length only, those of the longest."""
    spaces = []
    for model in models:
        if not isinstance(model, Distribution | Tilted):
            raise TypeError(f"{type(model).__name__} does not say what space it lives on")
        spaces.append(model.space)
    longest: Space = max(spaces, key=lambda space: space.length)
    for space in spaces:
        comparable = space.end is not None or space.length == longest.length
        if (space.vocabulary, space.end) != (longest.vocabulary, longest.end) or not comparable:
            raise UserError(f"The models have no sequences in common: one lives on {space}, another on {longest}.")
    return longest


def is_enumerable(*models: Model[Any]) -> bool:
    """Whether every sequence of the models' common space can be visited.

    Points never can, nor can what a score alone is of.
    """
    if any(isinstance(getattr(model, "space", None), PointSpace) for model in models):
        return False
    if not all(isinstance(model, Distribution | Tilted) for model in models):
        return False
    return has_at_most(common_space(*models), ENUMERABLE)


def device_of(model: object) -> torch.device:
    """Where a model's parameters are; the CPU when it has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


CHUNK = 65_536  # sequences scored at once


@in_evaluation_mode
def table(
    function: Callable[[Sequences], Tensor], space: Space, context: Context | None = None, *, device: torch.device
) -> Float[Tensor, "rows sequences ..."]:
    """A function of every sequence in every context, in the order of `all_sequences`."""
    coming = None if context is None else context.coming
    if coming is not None and bool((coming != coming[0]).any()):
        raise UserError("Enumeration wants equally many tokens to come in every row of the order: give one at a time.")
    everything, rows, parts = all_sequences(space), context_rows(context), []
    for start in range(0, len(everything.lengths), CHUNK):
        tokens = everything.tokens[start : start + CHUNK].to(device)
        lengths = everything.lengths[start : start + CHUNK].to(device)
        values = function(Sequences(tokens.repeat(rows, 1), lengths.repeat(rows)))
        parts.append(values.reshape(rows, len(lengths), *values.shape[1:]))
    return torch.cat(parts, 1)


def log_scores(
    model: Model, context: Context | None = None, *, space: Space | None = None
) -> Float[Tensor, "rows sequences"]:
    """log P(x|C) of every sequence of the model's space, or of a larger one."""
    space = (space or common_space(model)).after(context)
    return table(lambda x: score(model, x, context), space, context, device=device_of(model))


def log_z(model: Model, context: Context | None = None) -> Float[Tensor, " rows"]:
    """log Σₓ P(x|C)."""
    return torch.logsumexp(log_scores(model, context), -1)


def log_probabilities(
    model: Model, context: Context | None = None, *, space: Space | None = None
) -> Float[Tensor, "rows sequences"]:
    """log p(x|C) of every sequence, normalised by summation."""
    scores = log_scores(model, context, space=space)
    total = torch.logsumexp(scores, -1, keepdim=True)
    if bool((total == -math.inf).any()):
        raise UserError("The target gives no sequence a positive score, so it is no distribution: relax its energy.")
    return scores - total


def moments(model: Model, features: Features, context: Context | None = None) -> Float[Tensor, "rows features"]:
    """E_p[φ | C] for each feature."""
    probabilities = log_probabilities(model, context).exp()
    values = table(lambda x: features(x, context), common_space(model).after(context), context, device=device_of(model))
    return torch.einsum("rs,rsf->rf", probabilities, values.to(probabilities))


def divergence(kind: str, p: Model, q: Model, context: Context | None = None) -> Float[Tensor, " rows"]:
    """One of `DIVERGENCES`: D(p‖q) in each context."""
    space = common_space(p, q)
    terms = choose(divergences.DIVERGENCES, kind, "divergence")
    log_p, log_q = (log_probabilities(model, context, space=space) for model in (p, q))
    return terms(log_p, log_q.to(log_p)).value.sum(-1)


def entropy(model: Model, context: Context | None = None) -> Float[Tensor, " rows"]:
    """H(p) = −Σ p·log p, in nats."""
    return divergences.entropy(log_probabilities(model, context))
