"""Draws from a mixture of two models, on which both are scored to compare them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.estimators.draws import Support
from ebar.estimators.exact import Model
from ebar.maths.importance import all_warnings, check_weights
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Distribution, Sequences, Weighted, context_rows

BATCH = 4096  # sequences scored at once, over all rows of the context


class Comparison(NamedTuple):
    """log P(x)/r(x) of two models at draws of r, in float64."""

    log_first: Float[Tensor, "rows draws"]
    log_second: Float[Tensor, "rows draws"]
    log_reference: Float[Tensor, "rows draws"]  # log r(x)
    unseen: list[str | None]  # what the support check says, per row
    groups: Int[Tensor, " draws"] | None = None  # as in `Weighted`: which draws depend on one another
    strata: Int[Tensor, " draws"] | None = None


def source_of(model: Model) -> Distribution:
    """What a model's draws can come from: itself, or its base."""
    if isinstance(model, Distribution):
        return model
    if isinstance(model, Tilted):
        return model.base
    raise ValueError(f"{type(model).__name__} cannot be sampled from: give a proposal")


@torch.no_grad()
@in_evaluation_mode
def draw_comparison(
    sources: Sequence[Distribution],
    models: tuple[Model, Model],
    n: int,
    *,
    context: Context | None = None,
    generator: Generator,
) -> Comparison:
    """n draws for each row of the context from the even mixture r of the sources, and what the models make of them.

    A log-probability is computed once, however many of the sources and models it belongs to.
    """
    rows = context_rows(context)
    most = max(1, BATCH // rows)
    supports = [Support(model) for model in models]
    parts: list[list[Tensor]] = [[], [], []]
    counts = torch.bincount(torch.randint(len(sources), (n,), generator=generator), minlength=len(sources)).tolist()
    with bar("comparing", rows * n, "draws") as progress:
        for source, count in zip(sources, counts, strict=True):
            for start in range(0, count, most):
                size = min(most, count - start)
                x, log_prob = propose(source, size, context, generator)
                known: Known = [(source, log_prob.double())]
                log_r = torch.logsumexp(torch.stack([_known(known, other, x, context) for other in sources]), 0)
                log_r = log_r - torch.tensor(float(len(sources)), dtype=torch.float64).log()
                parts[2].append(log_r.reshape(rows, size))
                for part, model, support in zip(parts, models, supports, strict=False):
                    log_ratio = (_scored(known, model, x, context) - log_r).reshape(rows, size)
                    check_weights(log_ratio)
                    part.append(log_ratio)
                    support.see(x, rows, context)
                progress.advance(rows * size)
    first, second, reference = (torch.cat(part, 1) for part in parts)
    unseen = [all_warnings(*pair) for pair in zip(*(support.warnings(rows) for support in supports), strict=True)]
    return Comparison(first, second, reference, unseen)


@torch.no_grad()
def comparison_of(drawn: Weighted, p: Model, q: Model, *, context: Context | None = None) -> Comparison:
    """Weighted draws for p as such a pool: w stands for P/r, so q/r is w·q/P, whatever r the draws came from.

    Where w = 0 the draw says nothing of q.
    """
    context = drawn.context if context is None else context
    rows = drawn.log_weights.shape[0]
    log_first = drawn.log_weights.double()
    check_weights(log_first)
    support = Support(p)
    support.see(drawn.x, rows, context)
    log_p, log_q = (score(model, drawn.x, context).double().reshape(log_first.shape) for model in (p, q))
    nothing = log_first.isneginf()
    log_second = torch.where(nothing, -torch.inf, log_first + log_q - torch.where(nothing, 0.0, log_p))
    unseen = support.warnings(rows)
    return Comparison(log_first, log_second, log_p - log_first, unseen, drawn.groups, drawn.strata)


Known = list[tuple[object, Tensor]]  # log-probabilities of the batch at hand, by the model they belong to


def _known(known: Known, model: Model, x: Sequences, context: Context | None) -> Float[Tensor, " batch"]:
    for owner, log_prob in known:
        if owner is model:
            return log_prob
    known.append((model, score(model, x, context).double()))
    return known[-1][1]


def _scored(known: Known, model: Model, x: Sequences, context: Context | None) -> Float[Tensor, " batch"]:
    if isinstance(model, Tilted):
        return _known(known, model.base, x, context) - measured_energy(model.energy, x, context).double()
    return _known(known, model, x, context)
