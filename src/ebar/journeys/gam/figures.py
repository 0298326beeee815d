"""The figures of a GAM: r, P_λ and π side by side, beside the truth where it is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.automata import measures
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.estimators.divergences import divergence
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_z
from ebar.evaluation.cross_entropy import cross_entropy, cross_entropy_difference
from ebar.evaluation.exact_cross_entropy import (
    LARGEST,
    count_prefixes,
    exact_cross_entropy,
    per_token,
    tilted_cross_entropy,
)
from ebar.evaluation.means import plain_mean
from ebar.evaluation.moments import frequencies, mean_length, moment_distance, true_moment, true_moments
from ebar.features.feature import Features, Followed
from ebar.features.regular import Motif
from ebar.journeys.gam.conditional import (
    cost_of_pairs,
    draw_pairs,
    model_on_pairs,
    pairs_of,
    source_text,
)
from ebar.journeys.gam.settings import GamParts, GamRound
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted
from ebar.samplers.guided import Guided
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.rejection import Rejection
from ebar.shards import Workers
from ebar.store.writing import plain
from ebar.training.moment_matching.matching import Fitted
from ebar.types import Estimate, Sequences, Stepwise

DRAWS = 2000  # from r and π, as in Parshakova et al. 2019
EXAMPLES = 3  # of each model, in JSON

# The figures of a model, in nats per token with the end counted, and how they are called where they are shown.
COST, EXACT, RATIO = "cross_entropy", "exact_cross_entropy", "cross_entropy_over_entropy"
MOTIF, LENGTH = "motif_frequency", "mean_length"
TITLES = {
    COST: "cross-entropy on test data",  # the mean over sequences of NLL/length, as in Parshakova et al. 2019
    EXACT: "cross-entropy over the language",
    RATIO: "cross-entropy / H",
    MOTIF: "motif frequency",
    LENGTH: "mean length, end included",
}

Column = dict[str, Estimate]


@dataclass(frozen=True, kw_only=True)
class GamFigures:
    """All figures of a GAM, each with its interval. Frequencies of P_λ are those of the draws that π learns from."""

    entropy: float | None  # of the language, nats per token
    models: dict[str, Column]  # the language or the data first, then r, and P_λ and π of each round: "P_λ 2", "π 2" …
    features: list[str]
    moments: dict[str, Column]  # by whose they are: the data's, the language's, r's …
    fitted: list[Fitted]  # of each round
    distances: Column  # ℓ1 of r's, the distilled and π's moments to the language's, or the data's where it is unknown
    divergence: Estimate  # KL(p_λ ‖ π) of the last round, nats per sequence
    acceptance_rate: Estimate | None
    seconds: Mapping[str, float]  # of each stage
    warnings: list[str]
    examples: dict[str, list[str]]
    gains: Column = field(default_factory=dict)  # cost of r less that of π, nats per token, paired on the test items
    items: int = 0  # of the test data

    @property
    def coefficients(self) -> list[list[Estimate]]:
        """λ of each round, with its intervals."""
        return [_coefficients(fitted) for fitted in self.fitted]

    @property
    def verdict(self) -> str:
        """Whether the last π is better than r, over what, and by how much."""
        name = [one for one in self.gains if one.startswith("π")][-1]
        gain = self.gains[name]
        less = f"{gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}] nats per token less than r"
        over = f"on {self.items:,} test items (95 %, paired)"
        if gain.low > 0:
            return f"{name} gained: it costs {less}, {over}."
        if gain.high < 0:
            more = f"{-gain.value:.4f} [{-gain.high:.4f}, {-gain.low:.4f}] nats per token more than r"
            return f"{name} lost: it costs {more}, {over}; keep r, or give π more draws to learn from."
        return f"Nothing tells whether {name} gained: it costs {less}, {over}, and 0 is in the interval."

    def table(self) -> dict[str, list[Estimate | None]]:
        """The figures of all models, by their titles. Without a motif the features' means say what a model has."""
        columns = {name: dict(column) for name, column in self.models.items()}
        if MOTIF not in self.models["r"]:
            for name, column in columns.items():
                column |= {f"mean of {feature}": value for feature, value in self.moments.get(name, {}).items()}
        keys = dict.fromkeys([*TITLES, *(key for column in columns.values() for key in column)])
        rows = {TITLES.get(key, key): [column.get(key) for column in columns.values()] for key in keys}
        return {title: row for title, row in rows.items() if any(row)}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "entropy_per_token": self.entropy,
            "models": plain(self.models),
            "features": self.features,
            "moments": plain(self.moments),
            "lambda": [plain(dict(zip(self.features, row, strict=True))) for row in self.coefficients],
            "matching": [fitted.to_dict() for fitted in self.fitted],
            "moment_distances": plain(self.distances),
            "kl_of_pi_from_p": plain(self.divergence),
            "acceptance_rate": plain(self.acceptance_rate),
            "seconds": dict(self.seconds),
            "warnings": self.warnings,
            "examples": self.examples,
            **({"gains": plain(self.gains), "verdict": self.verdict} if self.gains else {}),
        }


@torch.no_grad()
def measure(made: GamParts, *, exact: bool, draws: int, workers: Workers | None = None) -> GamFigures:
    """Cross-entropies, frequencies, moments, lengths and divergences.

    `exact`: cross-entropies over the whole language too, where it is known and small enough. `draws` of P_λ are made
    for its log Z, and for KL(p‖π). `workers` share the exact cross-entropies.
    """
    data, features, rounds = made.data, made.features, made.rounds
    if data.sources("test") is not None:
        return _measure_pairs(made, draws)
    language = data.language
    truth = None if language is None else language.distribution()
    small = exact and truth is not None and count_prefixes(truth.graph) <= LARGEST  # mixtures with noise are not
    length = None if truth is None else measures.mean_length(truth)
    h = None if truth is None or length is None else measures.entropy(truth) / length
    motif = motif_of(data)
    last = rounds[-1]
    generator = Generator(device=device_of(last.base)).manual_seed(folded(made.seed, "figures"))
    models, moments, proposal = {}, {"data": frequencies(data.train, features)}, None
    gains: Column = {}
    if truth is not None and all(isinstance(feature, Followed) for feature in features.features):
        moments["language"] = {name: Estimate.exact(mean) for name, mean in true_moments(truth, features).items()}

    def add(name: str, cost: Column, x: Sequences) -> None:
        moments[name] = frequencies(x, features)
        best = cost.get(EXACT, cost[COST])
        ratio = {} if h is None else {RATIO: best.mapped(lambda nats: nats / h)}
        own = {} if motif is None else {MOTIF: frequencies(x, Features([motif]))[motif.name]}
        models[name] = {**cost, **ratio, **own, LENGTH: mean_length(x)}

    def whole_cost(model: Stepwise) -> Estimate:
        assert truth is not None
        return exact_cross_entropy(truth, model, workers=workers).per_token

    def add_autoregressive(name: str, model: Stepwise) -> None:
        x = model.sample(DRAWS, generator=generator)
        whole = {EXACT: whole_cost(model)} if small else {}
        add(name, {COST: cross_entropy(model, data.test).per_token, **whole}, x)

    add_autoregressive("r", rounds[0].base)
    for number, one in enumerate(rounds, 1):
        suffix = "" if number == 1 else f" {number}"
        z, proposal = _log_z(one.tilted(features), draws, generator)
        cost = {COST: cross_entropy(one.tilted(features), data.test, log_z=z).per_token}
        if number == 1 and truth is not None and length is not None and EXACT in models["r"]:
            same = one.teacher is one.base
            base = models["r"][EXACT] if same else whole_cost(one.teacher)
            of_base = base.mapped(lambda nats: nats * length)
            cost[EXACT] = per_token(truth, tilted_cross_entropy(truth, one.tilted(features), z, of_base))
        add(f"P_λ{suffix}", cost, one.draws)
        add_autoregressive(f"π{suffix}", one.student)
        gains[f"π{suffix}"] = cross_entropy_difference(rounds[0].base, one.student, data.test)
    kl = divergence("kl", last.tilted(features), last.student, proposal=proposal, draws=draws, generator=generator)[0]
    first = {"data" if language is None else "language": _perfect(data, h, EXACT in models["r"])}
    return GamFigures(
        entropy=h, models={**first, **models}, gains=gains, items=len(data.test.lengths),
        examples={name: data.text(x) for name, x in examples(made, EXAMPLES).items()},
        **_common(made, models, moments, kl),
    )  # fmt: skip


def _common(made: GamParts, models: Mapping[str, Column], moments: dict[str, Column], kl: Estimate) -> dict[str, Any]:
    """What figures of sequences and of pairs have alike."""
    rounds = made.rounds
    suffix = "" if len(rounds) == 1 else f" {len(rounds)}"
    last = {"r": "r", "distilled": f"P_λ{suffix}", "π": f"π{suffix}"}
    wanted = moments.get("language", moments["data"])
    return {
        "features": made.features.names,
        "moments": moments,
        "fitted": [one.fitted for one in rounds],
        "distances": {name: moment_distance(moments[of], wanted) for name, of in last.items()},
        "divergence": kl,
        "acceptance_rate": rounds[-1].distilled.acceptance_rate,
        "seconds": made.seconds,
        "warnings": said_once(_warnings(rounds, models, kl)),
    }


def _measure_pairs(made: GamParts, draws: int) -> GamFigures:
    """The same on test pairs: all figures are of their sources, the data's too."""
    data, features, rounds = made.data, made.features, made.rounds
    pairs = pairs_of(data, "test")
    generator = Generator(device=device_of(rounds[-1].base)).manual_seed(folded(made.seed, "figures"))
    models: dict[str, Column] = {"data": {LENGTH: mean_length(pairs[0])}}
    moments = {"data": frequencies(pairs[0], features, context=pairs[1])}
    costs: dict[str, Tensor] = {}
    gains: Column = {}

    def add(name: str, model: Stepwise) -> None:
        costs[name], x = model_on_pairs(model, pairs, generator=generator)
        gains[name] = plain_mean(costs["r"] - costs[name], name="gain")
        models[name] = {COST: plain_mean(costs[name], name="cost", low=0.0), LENGTH: mean_length(x)}
        moments[name] = frequencies(x, features, context=pairs[1])

    add("r", rounds[0].base)
    for number, one in enumerate(rounds, 1):
        suffix = "" if number == 1 else f" {number}"
        cost = cost_of_pairs(one.tilted(features), one.student, features, pairs, draws=draws, generator=generator)
        models[f"P_λ{suffix}"] = {COST: cost.per_token, LENGTH: cost.length}
        moments[f"P_λ{suffix}"] = cost.moments
        gain = plain_mean(costs["r"] - cost.costs, name="gain")
        gains[f"P_λ{suffix}"] = gain._replace(high=gain.high + cost.lift)
        add(f"π{suffix}", one.student)
    drawn = examples(made, EXAMPLES)
    measured = {name: own for name, own in models.items() if COST in own}
    sources = source_text(data, pairs[1].select(torch.arange(len(drawn["data"].lengths))))
    return GamFigures(
        entropy=None, models=models, gains={name: gain for name, gain in gains.items() if name != "r"},
        items=len(pairs[0].lengths),
        examples={"source": sources, **{name: data.text(x) for name, x in drawn.items()}},
        **_common(made, measured, moments, cost.divergence),
    )  # fmt: skip


def examples(made: GamParts, n: int) -> dict[str, Sequences]:
    """A few sequences of the data, of r, of P_λ and of π."""
    data, base, last = made.data, made.rounds[0].base, made.rounds[-1]
    generator = Generator(device=device_of(base)).manual_seed(folded(made.seed, "examples"))
    if data.sources("test") is not None:  # of the same sources, one each
        x, context = pairs_of(data, "test")
        first = context.select(torch.arange(min(n, context.rows)))
        of_p = draw_pairs(last.tilted(made.features), first, first.rows, Rejection(), generator=generator)
        return {
            "data": x.select(slice(first.rows)),
            "r": base.sample(1, first, generator=generator),
            "P_λ": of_p.x,
            "π": last.student.sample(1, first, generator=generator),
        }
    return {
        "data": data.train.select(slice(n)),
        "r": base.sample(n, generator=generator),
        "P_λ": last.draws.select(slice(n)),
        "π": last.student.sample(n, generator=generator),
    }


def motif_of(data: Corpus) -> Motif | None:
    """The language's own motif, present: its frequency is asked for whether or not it is a feature."""
    if data.language is None or data.language.motif is None:
        return None
    return Motif(data.language.motif).bind(data.reading)


def _log_z(target: Tilted, draws: int, generator: Generator) -> tuple[Estimate, Guided | None]:
    """From draws that look ahead where a feature can be followed; and the proposal that they came from."""
    proposal = None
    try:
        ahead = LookAhead()
        proposal = ahead.proposal(target, generator=generator)
        stream = ahead.stream(target, draws, proposal=proposal, generator=generator)
    except UserError:  # too large to look ahead, or nothing to look ahead to
        stream = Importance().stream(target, draws, generator=generator)
    return log_z(stream, target=target)[0].estimate, proposal


def _perfect(data: Corpus, h: float | None, exact: bool) -> Column:
    """What a perfect model would have."""
    if data.language is None or h is None:
        return {LENGTH: mean_length(data.train)}
    truth, motif = data.language.distribution(), motif_of(data)
    return {
        COST: Estimate.exact(h),
        **({EXACT: Estimate.exact(h)} if exact else {}),
        RATIO: Estimate.exact(1.0),
        **({} if motif is None else {MOTIF: Estimate.exact(true_moment(truth, motif))}),
        LENGTH: Estimate.exact(measures.mean_length(truth)),
    }


def _coefficients(fitted: Fitted) -> list[Estimate]:
    if fitted.intervals:
        return list(fitted.intervals)
    unknown = "this method gives no interval"
    return [Estimate(value, float("-inf"), float("inf"), 0.0, unknown) for value in fitted.coefficients.tolist()]


def _warnings(rounds: Sequence[GamRound], models: Mapping[str, Column], kl: Estimate) -> list[str]:
    found = [f"λ, round {at}: {words}" for at, one in enumerate(rounds, 1) for words in one.fitted.warnings]
    found += [f"samples, round {at}: {words}" for at, one in enumerate(rounds, 1) for words in one.distilled.warnings]
    costs = {**{f"cross-entropy of {name}": column[COST] for name, column in models.items()}, "KL(p‖π)": kl}
    return found + [f"{name}: {cost.warning}" for name, cost in costs.items() if cost.warning]


def said_once(warnings: Sequence[str]) -> list[str]:
    """What is said of several figures, in one sentence that names them. What is said of λ stands by itself."""
    found = [warning for warning in warnings if warning.startswith("λ")]
    places: dict[str, list[str]] = {}
    for warning in warnings:
        if warning not in found:
            place, _, words = warning.partition(": ")
            for sentence in words.split("; "):
                places.setdefault(sentence, []).append(place)
    return found + [f"{', '.join(where)}: {sentence}" for sentence, where in places.items()]
