"""Moment matching in contexts: one λ for all, each normalised by itself. Parshakova et al. 2019, equation 2."""

import math
import time
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators.moments import feature_means, weighted_mean
from ebar.features.feature import Features
from ebar.maths.exponential_family import inverse
from ebar.maths.jackknife import half_width
from ebar.maths.log_space import effective_sample_size, log_mean_exp, normalised
from ebar.maths.rows import evenly
from ebar.models.tilted import propose
from ebar.progress import bar
from ebar.training.moment_matching.matching import Fitted, Wanted
from ebar.training.moment_matching.newton import Newton
from ebar.types import Context, Distribution, Estimate, Sequences

PER_CONTEXT = 64  # draws of r for each context: estimates within one are biased by one in so many
MANY = 0.05  # share of contexts whose data lie outside their draws, from which on it is worth a warning
CLOSE = 1e-10  # of the gradient


class ContextDraws(NamedTuple):
    """Draws of a model for each row of a context, with their features."""

    x: Sequences  # context-major
    log_probs: Float[Tensor, "rows draws"]
    values: Float[Tensor, "rows draws features"]


@torch.no_grad()
def draw_in_contexts(
    base: Distribution,
    features: Features,
    context: Context,
    draws: int,
    *,
    batch_size: int = 4096,
    generator: Generator,
) -> ContextDraws:
    """`draws` of the base for each row, some rows at a time, in evaluation mode."""
    found, log_probs, values = [], [], []
    at_once = max(1, batch_size // draws)
    with bar("drawing", context.rows, "contexts") as progress:
        for rows in torch.split(torch.arange(context.rows, device=context.given.lengths.device), at_once):
            own = context.select(rows)
            x, log_prob = propose(base, draws, own, generator)
            found.append(x)
            log_probs.append(log_prob.double().view(len(rows), draws))
            values.append(features(x, own).double().view(len(rows), draws, -1))
            progress.advance(len(rows))
    return ContextDraws(Sequences.join(found), torch.cat(log_probs), torch.cat(values).cpu())


class _State(NamedTuple):
    means: Float[Tensor, "rows features"]  # E_λ[φ | C], over the draws for C and the datum
    hessian: Float[Tensor, "features features"]  # the mean over contexts of Cov_λ[φ | C]
    value: float  # the mean log-probability of the datum among them


def _state(together: Float[Tensor, "rows candidates features"], coefficients: Float[Tensor, " features"]) -> _State:
    """Of candidates for each context, the first of which is the datum."""
    log_shares = torch.log_softmax(together @ coefficients, 1)
    means = torch.einsum("rc,rcf->rf", log_shares.exp(), together)
    centred = together - means[:, None]
    hessian = torch.einsum("rc,rcf,rcg->fg", log_shares.exp(), centred, centred) / len(together)
    return _State(means, hessian, float(log_shares[:, 0].mean()))


def match_in_contexts(
    base: Distribution, features: Features, x: Sequences, context: Context, *, method: Newton = Newton(),  # noqa: B008
    per_context: int = PER_CONTEXT, generator: Generator,
) -> Fitted:  # fmt: skip
    """λ of p_λ(x|C) = r(x|C)·exp⟨λ, φ(x, C)⟩/Z_λ(C), the same for all contexts, from pairs of x and C.

    At the maximum of the likelihood the mean over pairs of φ(x, C) − E_λ[φ | C] is 0. E_λ is estimated for each context
    from its own draws of r(·|C), never from those of all contexts together, which would let one context's weights
    stand for another's. The datum is one of the candidates, so that what is maximised is its log-probability among
    them: then λ is consistent however few draws there are for each context, if p_λ is the truth for some λ (ranking
    noise-contrastive estimation, Ma and Collins 2018), and finite where the draws of a context do not show what its
    datum has. `method.draws` are shared out, `per_context` for each of as many pairs, evenly spaced, as they allow; its
    ridge and level are used too. Intervals are over pairs: they hold the data's error and the draws'.
    """
    begun = time.monotonic()
    if context.rows != len(x.lengths):
        raise ValueError(f"{len(x.lengths)} sequences need as many contexts, got {context.rows}")
    if len(features) == 0:
        raise UserError("There is no feature to match: give at least one.")
    rows = evenly(context.rows, max(2, method.draws // per_context)).to(x.lengths.device)
    x, context = x.select(rows), context.select(rows)
    data = features(x, context).double().cpu()
    drawn = draw_in_contexts(base, features, context, per_context, batch_size=method.batch_size, generator=generator)
    ridge = Wanted(data.mean(0), len(data), data).default_ridge() if method.ridge is None else method.ridge
    together = torch.cat([data[:, None], drawn.values], 1)
    coefficients, trace = _maximised(together, ridge, method.max_iterations)
    found = _state(together, coefficients)
    means = torch.einsum("rd,rdf->rf", normalised(drawn.values @ coefficients), drawn.values)
    hessian = found.hessian + ridge * torch.eye(len(coefficients), dtype=torch.float64)
    size = len(data)
    moved = (data - found.means) @ inverse(hessian) / max(size - 1, 1)
    ends = _ends(together, coefficients, half_width(moved.T, method.level), ridge, method)
    sizes = effective_sample_size(drawn.values @ coefficients)
    covariance = (moved - moved.mean(0)).T @ (moved - moved.mean(0)) * (max(size - 1, 1) / size)
    equal = torch.zeros(size, dtype=torch.float64)  # weights of the contexts
    log_z = weighted_mean(equal[None], log_mean_exp(drawn.values @ coefficients)[None], level=method.level)[0]
    warnings = _warnings(features, drawn.values, data, sizes)
    return Fitted(
        method="newton",
        names=tuple(features.names),
        coefficients=coefficients,
        covariance=covariance,
        data_moments=tuple(data.mean(0).tolist()),
        model_moments=tuple(feature_means(equal, means, features, method.level)),
        base_moments=tuple(feature_means(equal, drawn.values.mean(1), features, method.level)),
        distance=float((means - data).mean(0).abs().sum()),
        trace=trace,
        effective_sample_size=float(sizes.sum()),
        log_z=log_z,
        draws=size * per_context,
        seconds=time.monotonic() - begun,
        warnings=tuple(warnings.values()),
        intervals=tuple(
            Estimate(value, low, high, float(size), warnings.get(column), method.level)
            for column, (value, (low, high)) in enumerate(zip(coefficients.tolist(), ends, strict=True))
        ),
    )


def _ends(
    together: Float[Tensor, "rows candidates features"], coefficients: Float[Tensor, " features"],
    widths: Float[Tensor, " features"], ridge: float, method: Newton,
) -> list[tuple[float, float]]:  # fmt: skip
    """Of each λ. Where all data are at one end of a feature's range, λ is open on that side.

    On the other it ends at the λ that matches a share s of other data, which go unseen with probability
    (1−s)^|D| = 1 − level (the rule of three).
    """
    found = []
    share = 1 - (1 - method.level) ** (1 / len(together))
    for column, (value, width) in enumerate(zip(coefficients.tolist(), widths.tolist(), strict=True)):
        low, high = value - width, value + width
        seen, data = together[:, :, column], together[:, 0, column]
        for end, sign in ((seen.amax(), -1.0), (seen.amin(), 1.0)):
            if bool((data == end).all()) and bool(seen.amax() > seen.amin()):
                shift = torch.zeros_like(coefficients)
                shift[column] = sign * share * float(seen.amax() - seen.amin())
                bound = float(_maximised(together, ridge, method.max_iterations, shift)[0][column])
                low, high = (min(bound, value), math.inf) if sign < 0 else (-math.inf, max(bound, value))
        found.append((low, high))
    return found


def _maximised(
    together: Float[Tensor, "rows candidates features"],
    ridge: float,
    most: int,
    shift: Float[Tensor, " features"] | None = None,
) -> tuple[Float[Tensor, " features"], tuple[float, ...]]:
    """Newton's method on a concave function, its steps halved until they rise; and the distances of moments.

    `shift` is added to the data's moments.
    """
    coefficients = torch.zeros(together.shape[2], dtype=torch.float64)
    shift = torch.zeros_like(coefficients) if shift is None else shift
    trace = []

    def penalised(state: _State, at: Tensor) -> float:
        return state.value + float(shift @ at) - ridge / 2 * float(at.square().sum())

    now = _state(together, coefficients)
    for _ in range(most):
        gap = (together[:, 0] - now.means).mean(0) + shift
        trace.append(float(gap.abs().sum()))
        gradient = gap - ridge * coefficients
        if float(gradient.abs().max()) < CLOSE:
            break
        step = inverse(now.hessian + ridge * torch.eye(len(gradient), dtype=torch.float64)) @ gradient
        share = 1.0
        while share > CLOSE:
            ahead = _state(together, coefficients + share * step)
            if penalised(ahead, coefficients + share * step) >= penalised(now, coefficients):
                break
            share /= 2
        if share <= CLOSE:
            break
        coefficients, now = coefficients + share * step, ahead
    return coefficients, tuple(trace)


def _warnings(
    features: Features, values: Float[Tensor, "rows draws features"], data: Float[Tensor, "rows features"],
    sizes: Float[Tensor, " rows"],
) -> dict[int | None, str]:  # fmt: skip
    """By the column that they are about; None: about all."""
    found: dict[int | None, str] = {}
    outside = ((data > values.amax(1)) | (data < values.amin(1))).double().mean(0)
    for column, (feature, share) in enumerate(zip(features.features, outside.tolist(), strict=True)):
        if float(values[:, :, column].amax()) == float(values[:, :, column].amin()):
            found[column] = f"{feature.name!r} is the same in all draws of r, so nothing is known of its λ."
        elif bool((data[:, column] == data[0, column]).all()):
            found[column] = f"{feature.name!r} is the same in all data, so that only the prior keeps its λ finite."
        elif share > MANY:
            found[column] = (
                f"In {share:.0%} of the pairs {feature.name!r} is as in none of the {values.shape[1]} draws of r for "
                "that source, so that its λ is rough: train r further."
            )
    few = float((sizes < math.sqrt(values.shape[1])).double().mean())
    if few > MANY:
        found[None] = f"In {few:.0%} of the contexts the draws have an effective size below their square root."
    return found
