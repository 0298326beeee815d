"""What a journey came to: r, P_λ and π side by side, against the truth where it is known."""

from dataclasses import dataclass, field

import torch
from torch import Generator

from ebar.automata import entropy, measures
from ebar.data.corpora import read_corpus
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.estimators.divergences import divergence
from ebar.estimators.log_z import log_z
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.exact_cross_entropy import (
    LARGEST,
    count_prefixes,
    exact_cross_entropy,
    per_token,
    tilted_cross_entropy,
)
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.evaluation.moments import moment_distance, true_moments
from ebar.features.feature import Feature, Features, Followed
from ebar.features.regular import Motif
from ebar.journeys.gam.journey import Journey, seconds_of
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers.guided import Guided
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.training.moment_matching import Fitted
from ebar.types import Estimate

DRAWS = 2000  # from r and π, as in the document
POOL = 10_000  # draws for log Z and KL


@dataclass(frozen=True, kw_only=True)
class Model:
    """The figures of one model; nats per token, the end counted."""

    cross_entropy: Estimate  # on T, mean over sequences of NLL/length as in the document
    exact: Estimate | None = None  # over the whole language
    motif_frequency: Estimate | None = None
    moments: dict[str, Estimate] = field(default_factory=dict)
    mean_length: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All figures of a journey. `models` has r, and for each round P_λ and π: "r", "P", "π", "P 2", "π 2" …"""

    entropy: float | None  # of the language, nats per token
    models: dict[str, Model]
    data_moments: dict[str, Estimate]  # of D
    true_moments: dict[str, float] | None
    distilled_moments: dict[str, Estimate]  # of the last round
    distances: dict[str, Estimate]  # ℓ1_mom to the truth, or to D where it is not known
    divergence: Estimate  # KL(p_λ ‖ π) of the last round, nats per sequence
    fitted: tuple[Fitted, ...]
    acceptance_rate: Estimate | None
    seconds: dict[str, float]
    warnings: list[str]


@torch.no_grad()
def measure(journey: Journey, *, seed: int, exact: bool, pool: int = POOL) -> Measured:
    """Cross-entropies, frequencies, moments, lengths and divergences, each with its interval."""
    corpus, features = journey.corpus, journey.features
    truth = None if corpus.language is None else corpus.language.distribution()
    motif = _motif(corpus)
    asked = Features([*features.features, *([] if motif is None else [motif])])
    device = next(journey.base.parameters()).device
    generator = Generator(device=device).manual_seed(folded(seed, 4))
    models = {"r": _autoregressive(journey.base, corpus, asked, motif, exact, generator)}
    proposal = None
    for number, one in enumerate(journey.rounds, 1):
        suffix = "" if number == 1 else f" {number}"
        target = one.tilted(features)
        base = models["r"].exact if number == 1 else None
        models[f"P{suffix}"], proposal = _tilted(target, corpus, base, pool, generator)
        models[f"π{suffix}"] = _autoregressive(one.student, corpus, asked, motif, exact, generator)
    last = journey.rounds[-1]
    target = last.tilted(features)
    distilled = read_corpus(last.folder.parent / "distilled.txt", corpus.alphabet, corpus.space)
    data_moments = frequencies(corpus.train, features)
    true = None if truth is None or not _followed(features) else true_moments(truth, features)
    yardstick = data_moments if true is None else true
    distilled_moments = frequencies(distilled, features)
    found = {
        "r": {name: models["r"].moments[name] for name in features.names},
        "distilled": distilled_moments,
        "π": {name: models[list(models)[-1]].moments[name] for name in features.names},
    }
    kl = divergence("kl", target, last.student, proposal=proposal, draws=pool, generator=generator)[0]
    return Measured(
        entropy=None if truth is None else entropy(truth) / measures.mean_length(truth),
        models=models,
        data_moments=data_moments,
        true_moments=true,
        distilled_moments=distilled_moments,
        distances={name: moment_distance(moments, yardstick) for name, moments in found.items()},
        divergence=kl,
        fitted=tuple(one.fitted for one in journey.rounds),
        acceptance_rate=last.distilled.acceptance_rate,
        seconds=seconds_of(journey.folder),
        warnings=_warnings(journey, models, kl),
    )


def _autoregressive(
    model: Autoregressive, corpus: Corpus, features: Features, motif: Feature | None, exact: bool, generator: Generator
) -> Model:
    drawn = model.sample(DRAWS, generator=generator)
    found = frequencies(drawn, features)
    whole = None
    if exact and corpus.language is not None:
        truth = corpus.language.distribution()
        if count_prefixes(truth.graph) <= LARGEST:  # a mixture with noise has too many: T will have to do
            whole = exact_cross_entropy(truth, model).per_token
    return Model(
        cross_entropy=cross_entropy(model, corpus.test).per_token,
        exact=whole,
        motif_frequency=None if motif is None else found[motif.name],
        moments=found,
        mean_length=mean_length(drawn),
    )


def _tilted(
    target: Tilted, corpus: Corpus, base: Estimate | None, pool: int, generator: Generator
) -> tuple[Model, Guided | None]:
    """P_λ's own cross-entropy needs log Z, from draws that look ahead where a feature can be followed."""
    proposal = None
    try:
        ahead = LookAhead()
        proposal = ahead.proposal(target, generator=generator)
        stream = ahead.stream(target, pool, proposal=proposal, generator=generator)
    except UserError:  # too large to look ahead, or nothing to look ahead to
        stream = Importance().stream(target, pool, generator=generator)
    z = log_z(stream, target=target)[0].estimate
    whole = None
    if base is not None and corpus.language is not None:
        truth = corpus.language.distribution()
        length = measures.mean_length(truth)
        per_sequence = base._replace(value=base.value * length, low=base.low * length, high=base.high * length)
        whole = per_token(truth, tilted_cross_entropy(truth, target, z, per_sequence))
    return Model(cross_entropy=cross_entropy(target, corpus.test, log_z=z).per_token, exact=whole), proposal


def _motif(corpus: Corpus) -> Motif | None:
    """The language's own motif, present: its frequency is asked for whether or not it is a feature."""
    if corpus.language is None or corpus.language.motif is None:
        return None
    return Motif(corpus.language.motif).bind(corpus.reading)


def _followed(features: Features) -> bool:
    return all(isinstance(feature, Followed) for feature in features.features)


def _warnings(journey: Journey, models: dict[str, Model], kl: Estimate) -> list[str]:
    found = [f"λ, round {at}: {words}" for at, one in enumerate(journey.rounds, 1) for words in one.fitted.warnings]
    found += [f"samples, round {at}: {words}" for at, one in enumerate(journey.rounds, 1)
              for words in one.distilled.warnings]  # fmt: skip
    found += [f"cross-entropy of {name}: {model.cross_entropy.warning}" for name, model in models.items()
              if model.cross_entropy.warning]  # fmt: skip
    return found + ([f"KL(p‖π): {kl.warning}"] if kl.warning else [])
