"""KL, reverse KL, total variation and Jensen–Shannon between any two models, normalised or not, and entropy.

Where neither can be enumerated, both are scored on draws from a mixture of the two.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.automata import measures
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError, choose
from ebar.estimators import exact
from ebar.estimators.draws import Range, Support, few_groups
from ebar.estimators.exact import Model, is_enumerable
from ebar.maths.divergences import DIVERGENCES
from ebar.maths.importance import all_warnings, check_weights, diagnose
from ebar.maths.jackknife import half_width, log_rest
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.maths.randomness import default_generator
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Distribution, Estimate, PointSpace, Weighted, X, context_rows

BATCH = 4096  # sequences scored at once, over all rows of the context


class Comparison(NamedTuple):
    """log P(x)/r(x) of two models at draws of r, in float64."""

    log_first: Float[Tensor, "rows draws"]
    log_second: Float[Tensor, "rows draws"]
    log_reference: Float[Tensor, "rows draws"]  # log r(x)
    unseen: list[str | None]  # what the support check says, per row
    groups: Int[Tensor, " draws"] | None = None  # as in `Weighted`: which draws depend on one another
    strata: Int[Tensor, " draws"] | None = None


def source_of(model: Model[X]) -> Distribution[X, Any]:
    """What a model's draws can come from: itself, or its base."""
    if isinstance(model, Distribution):
        return model
    if isinstance(model, Tilted):
        return model.base
    raise ValueError(f"{type(model).__name__} cannot be sampled from: give a proposal")


def draw_comparison(
    sources: Sequence[Distribution[X, Any]], models: tuple[Model[X], Model[X]], n: int, **options: Any
) -> Comparison:
    """n draws for each row of the context from the even mixture r of the sources, and what the models make of them."""
    return compared([draw_share(sources, models, n, **options)], models)


class ScoredShare(NamedTuple):
    """Some of the draws of a comparison, made apart from the others."""

    log_first: Float[Tensor, "rows draws"]
    log_second: Float[Tensor, "rows draws"]
    log_reference: Float[Tensor, "rows draws"]
    ranges: tuple[Range, Range]  # of the features of each model's energy


@torch.no_grad()
@in_evaluation_mode
def draw_share(
    sources: Sequence[Distribution[X, Any]],
    models: tuple[Model[X], Model[X]],
    n: int,
    *,
    context: Context | None = None,
    generator: Generator,
) -> ScoredShare:
    """n of the draws of a comparison.

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
    return ScoredShare(first, second, reference, (supports[0].range, supports[1].range))


def compared(shares: Sequence[ScoredShare], models: tuple[Model[X], Model[X]]) -> Comparison:
    """All shares together, with what none of them has shown."""
    supports = [Support(model) for model in models]
    for share in shares:
        for support, seen in zip(supports, share.ranges, strict=True):
            support.widen(seen)
    first, second, reference = (torch.cat(part, 1) for part in zip(*(share[:3] for share in shares), strict=True))
    warnings = (support.warnings(len(first)) for support in supports)
    return Comparison(first, second, reference, [all_warnings(*pair) for pair in zip(*warnings, strict=True)])


@torch.no_grad()
def comparison_of(drawn: Weighted[X], p: Model[X], q: Model[X], *, context: Context | None = None) -> Comparison:
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
    unseen = [all_warnings(drawn.doubt, warning) for warning in support.warnings(rows)]
    return Comparison(log_first, log_second, log_p - log_first, unseen, drawn.groups, drawn.strata)


Known = list[tuple[object, Tensor]]  # log-probabilities of the batch at hand, by the model they belong to


def _known(known: Known, model: Model[X], x: X, context: Context | None) -> Float[Tensor, " batch"]:
    for owner, log_prob in known:
        if owner is model:
            return log_prob
    known.append((model, score(model, x, context).double()))
    return known[-1][1]


def _scored(known: Known, model: Model[X], x: X, context: Context | None) -> Float[Tensor, " batch"]:
    if isinstance(model, Tilted):
        return _known(known, model.base, x, context) - measured_energy(model.energy, x, context).double()
    return _known(known, model, x, context)


LARGEST = {"kl": math.inf, "reverse_kl": math.inf, "total_variation": 1.0, "jensen_shannon": math.log(2)}


@torch.no_grad()
def divergence(
    kind: str,
    p: Model[X],
    q: Model[X],
    *,
    context: Context | None = None,
    draws: int | Weighted[X] = 10_000,
    proposal: Distribution[X, Any] | None = None,
    generator: Generator | None = None,
    level: float = 0.95,
) -> list[Estimate]:
    """D(p‖q) for each row of the context: exact for two automata (KL) and on small spaces, else by sampling.

    Naming a proposal, to draw from in place of p, asks for sampling; so does giving draws for p that were made before,
    by whatever sampler. `exact.divergence` is the differentiable twin. Without a generator, randomness comes from
    torch's own state.
    """
    choose(DIVERGENCES, kind, "divergence")
    if isinstance(draws, Weighted):
        return _from_draws(kind, p, q, draws, context, level)
    if proposal is None and (known := known_divergence(kind, p, q, context)) is not None:
        return known
    generator = default_generator() if generator is None else generator
    sources = sources_for(kind, p, q, proposal)
    pool = draw_comparison(sources, (p, q), draws, context=context, generator=generator)
    return sampled(kind, pool, normalised=(isinstance(p, Distribution), isinstance(q, Distribution)), level=level)


def known_divergence(kind: str, p: Model[X], q: Model[X], context: Context | None = None) -> list[Estimate] | None:
    """Where nothing has to be drawn: of two automata, and on small spaces."""
    if isinstance(p, ProbabilisticAutomaton) and isinstance(q, ProbabilisticAutomaton) and kind.endswith("kl"):
        return [Estimate.exact(measures.kl(p, q) if kind == "kl" else measures.kl(q, p))]
    if is_enumerable(p, q):
        first: Any = p
        second: Any = q  # of sequences, both
        return [Estimate.exact(value) for value in exact.divergence(kind, first, second, context).tolist()]
    return None


def _from_draws(
    kind: str, p: Model[X], q: Model[X], draws: Weighted[X], context: Context | None, level: float
) -> list[Estimate]:
    if not draws.estimates_z and not isinstance(p, Distribution):
        raise UserError(
            "A divergence from an unnormalised model needs Z, of which draws of Markov chains say nothing: "
            "draw by importance, resampling, smc, annealed or look_ahead."
        )
    if kind == "reverse_kl" or not isinstance(q, Distribution):
        raise UserError(
            "Draws for the first model do not show where only the second has mass, which this divergence needs: "
            "leave draws out, or give their number."
        )
    pool = comparison_of(draws, p, q, context=context)
    return sampled(kind, pool, normalised=(isinstance(p, Distribution), True), level=level, missing=True)


# f(0, 1): what mass of q where p has none adds.
# Which of the two ratios multiplies the terms, so that its tail is the terms' tail; both, where neither is named.
WEIGHING = {"kl": (0,), "reverse_kl": (1,)}
OUTSIDE = {"kl": 0.0, "total_variation": 0.5, "jensen_shannon": math.log(2) / 2}


def sources_for(
    kind: str, p: Model[X], q: Model[X], proposal: Distribution[X, Any] | None
) -> list[Distribution[X, Any]]:
    """Where the divergence's terms are: p for KL, q for the reverse, both for the symmetric two.

    To these is added the base of whatever has to be normalised: another's draws need not reach all of its support. A
    proposal stands in for p alone: one that heads for p may never go where only q has mass.
    """
    models = {"kl": [p], "reverse_kl": [q]}.get(kind, [p, q])
    models += [model for model in (p, q) if not isinstance(model, Distribution)]
    sources: list[Distribution[X, Any]] = []
    for model in models:
        source = proposal if model is p and proposal is not None else source_of(model)
        if all(source is not other for other in sources):
            sources.append(source)
    return sources


def sampled(
    kind: str, pool: Comparison, *, normalised: tuple[bool, bool], level: float = 0.95, missing: bool = False
) -> list[Estimate]:
    """D̂ = (1/n)·Σ f(aᵢ, bᵢ) with a = p/r, b = q/r over draws from r, normalisers that are not known being estimated
    from the same draws.

    With f homogeneous of degree one, draw i moves D̂ by fᵢ − D̂ − (aᵢ − 1)·mean(a∂f/∂a), and the same in b, the last
    two only where that normaliser was estimated: the interval is the jackknife's of these influences. For KL this is
    the estimator −log Z + E_r[(P/Zr)·log(P/π)] of GDC, for TV its ½E_r|π/r − P/(Zr)|. A draw that p can make and q
    cannot proves KL infinite, and that is what is returned.

    `missing`: the draws do not reach where p has no mass. What q has there, 1 − E_r[b], adds f(0, 1) times as much.
    """
    logs = []
    for log_ratio, known in zip((pool.log_first, pool.log_second), normalised, strict=True):
        total = log_mean_exp(log_ratio)[:, None]
        logs.append(log_ratio if known else log_ratio - torch.where(total == -math.inf, 0.0, total))
    terms = DIVERGENCES[kind](logs[0], logs[1])
    n = terms.value.shape[1]
    each = terms.value
    if missing and OUTSIDE[kind]:
        each = each + OUTSIDE[kind] * (1 - logs[1].exp())
    values = each.mean(-1)
    influence = each - values[:, None]
    leverage = torch.full_like(influence, 1 / n)
    for log_ratio, slope, known in zip(logs, (terms.slope_a, terms.slope_b), normalised, strict=True):
        if not known:
            ratio = log_ratio.exp()
            influence = influence - (ratio - 1) * slope.mean(-1, keepdim=True)
            leverage = torch.maximum(leverage, ratio / n)
    if pool.groups is not None:
        influence, leverage = _by_group(influence, pool.groups), _by_group(leverage, pool.groups)
    widths = half_width(
        influence / (n * (1 - leverage)), level, strata=None if pool.groups is not None else pool.strata
    )
    used = [index for index in (0, 1) if not normalised[index] or index in WEIGHING.get(kind, (0, 1))]
    reasons = [diagnose(logs[index]) for index in used]
    if pool.groups is not None:  # weights of one group are no sample whose tail could be judged
        reasons = [[few_groups(influence.shape[1])] * len(values)]
    sizes = torch.stack([effective_sample_size(logs[index]) for index in used]).amin(0)
    found = []
    for row, unseen in enumerate(pool.unseen):
        value, width, size = float(values[row]), float(widths[row]), float(sizes[row])
        warning = all_warnings(*(reason[row] for reason in reasons), unseen)
        if value == math.inf:
            warning = all_warnings("a draw of one model is impossible under the other", unseen)
            found.append(Estimate(math.inf, math.inf, math.inf, size, warning, level))
            continue
        if size == 0:
            found.append(Estimate(math.nan, 0.0, LARGEST[kind], size, warning, level))
            continue
        value, low, high = (min(max(end, 0.0), LARGEST[kind]) for end in (value, value - width, value + width))
        found.append(Estimate(value, low, high, size, warning, level))
    return found


def _by_group(values: Float[Tensor, "rows draws"], groups: Int[Tensor, " draws"]) -> Float[Tensor, "rows groups"]:
    _, group = torch.unique(groups.to(values.device), return_inverse=True)
    return values.new_zeros(len(values), int(group.max()) + 1).index_add_(1, group, values)


def kl_to_model(
    log_weights: Float[Tensor, " draws"], log_proposal: Float[Tensor, " draws"], log_model: Float[Tensor, " draws"]
) -> Estimate:
    """KL(p‖model) from draws of a proposal g with log-weights log P/g: −log Z + E_g[(P/Zg)·log(P/model)].

    The estimator of GDC (Khalifa et al. 2021, arXiv:2012.11635).
    """
    pool = Comparison(log_weights[None], (log_model - log_proposal)[None], log_proposal[None], [None])
    return sampled("kl", pool, normalised=(False, True))[0]


def kl_from_model(log_model: Float[Tensor, " draws"], log_q: Float[Tensor, " draws"]) -> Estimate:
    """KL(model‖q) from draws of the model itself."""
    pool = Comparison(torch.zeros_like(log_model)[None], (log_q - log_model)[None], log_model[None], [None])
    return sampled("kl", pool, normalised=(True, True))[0]


@torch.no_grad()
def entropy(
    model: Model[X],
    *,
    context: Context | None = None,
    draws: int = 10_000,
    proposal: Distribution[X, Any] | None = None,
    generator: Generator | None = None,
    level: float = 0.95,
) -> list[Estimate]:
    """H(p|C) in nats for each row of the context: exact for automata and on small spaces, else by sampling.

    Of a tilted model, H = log Z − E_p[log P], both from the same draws of its base, or of a proposal. Naming one asks
    for sampling; a score with no base needs one.
    """
    if proposal is None and isinstance(model, ProbabilisticAutomaton):
        return [Estimate.exact(measures.entropy(model))]
    if proposal is None and is_enumerable(model):
        sequences: Any = model
        return [Estimate.exact(value) for value in exact.entropy(sequences, context).tolist()]
    generator = default_generator() if generator is None else generator
    source = source_of(model) if proposal is None else proposal
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
    # The entropy of a density has no least value.
    least = -math.inf if isinstance(getattr(source, "space", None), PointSpace) else 0.0
    return [
        # Where nothing was drawn the value is NaN, and every entropy remains possible.
        Estimate(value, max(least, value - width), value + width if size > 0 else math.inf, size, warning, level)
        for value, width, size, warning in zip(values.tolist(), widths.tolist(), sizes.tolist(), warnings, strict=True)
    ]
