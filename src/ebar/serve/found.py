"""What a request asks for, what it is told meanwhile, and what it gets: weighted texts and what is read off them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.effective_samples import EffectiveSamples, effective_samples, same_draws
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.maths.log_space import normalised
from ebar.serve.allowance import Allowance
from ebar.types import Estimate, Sequences


class Knob(NamedTuple):
    """What a slider turns: P_λ ∝ P·exp((λ − at)·exponent), and whose mean under P_λ is told."""

    name: str
    exponent: Float[Tensor, " points"]
    values: Float[Tensor, " points"]  # the mean of which is the moment
    at: float  # the λ of P itself
    low: float = -math.inf  # the range of the values
    high: float = math.inf


class NextWord(NamedTuple):
    """A token as the next one."""

    token: int  # −1: all others together
    text: str
    q: float
    p: Estimate


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points x with weights: E[w·f(x)] = Σ P(x)·f(x) for draws; all of a small space with w = P(x) where `exact`."""

    x: Sequences
    texts: list[str]
    log_q: Float[Tensor, " points"]  # float64 and on the CPU, like all others
    energy: Float[Tensor, " points"]
    log_weights: Float[Tensor, " points"]
    exact: bool = False

    @property
    def shares(self) -> Float[Tensor, " points"]:
        """Of the whole weight."""
        return normalised(self.log_weights)

    def log_z(self) -> Estimate:
        """Of P: the mean weight of draws, the sum of all weights where all texts are there."""
        if self.exact:
            return Estimate.exact(float(torch.logsumexp(self.log_weights, 0)))
        return log_mean(self.log_weights[None])[0].estimate

    def effective(self) -> EffectiveSamples | None:
        """Effective samples per draw; None where nothing was drawn."""
        return None if self.exact else effective_samples(self.log_weights, same_draws(self.x))

    def mean(
        self, values: Float[Tensor, " points"], *, low: float = -math.inf, high: float = math.inf, name: str = "value",
        log_weights: Float[Tensor, " points"] | None = None,
    ) -> Estimate:  # fmt: skip
        """Of values under p, or under what other weights say."""
        log_weights = self.log_weights if log_weights is None else log_weights
        if self.exact:
            shares = normalised(log_weights)
            return Estimate.exact(float(torch.where(shares > 0, shares * values, 0.0).sum()))
        return weighted_mean(log_weights[None], values[None], low=low, high=high, name=name)[0]

    def moment(self, knob: Knob, coefficient: float) -> Estimate:
        """The mean at another λ: the same draws with other weights, which warn where these are too uneven."""
        log_weights = self.log_weights + (coefficient - knob.at) * knob.exponent
        return self.mean(knob.values, low=knob.low, high=knob.high, name=knob.name, log_weights=log_weights)

    def first_tokens(self, log_q: Float[Tensor, " vocabulary"], texts: list[str], most: int) -> list[NextWord]:
        """The likeliest next tokens under q and under p, and all others together; `texts` are their spellings."""
        first = self.x.tokens[:, 0].cpu()
        mass = torch.zeros(len(log_q), dtype=torch.float64).index_add(0, first, self.shares)
        chosen = dict.fromkeys(
            [*mass.topk(min(most, len(mass))).indices.tolist(), *log_q.topk(min(most, len(mass))).indices.tolist()]
        )
        shown = [token for token in chosen if log_q[token] > -math.inf and (mass[token] > 0 or log_q[token] > -7)]
        found = [
            NextWord(token, texts[token], math.exp(float(log_q[token])), self._share(first == token, texts[token]))
            for token in shown
        ]
        found.sort(key=lambda word: (-word.p.value, -word.q))
        others = torch.ones(len(log_q), dtype=torch.bool)
        others[shown] = False
        if bool(others.any()) and float(log_q[others].exp().sum()) > 1e-12:
            rest = math.exp(float(torch.logsumexp(log_q[others], 0)))
            found.append(NextWord(-1, "all others", rest, self._share(others[first], "others")))
        return found

    def _share(self, among: Tensor, name: str) -> Estimate:
        return self.mean(among.double(), low=0.0, high=1.0, name=name)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request about one model, as it was typed."""

    name: str
    prompt: str = ""
    constraints: str = ""  # one a line
    reads_prompt: bool = False
    length: float | int | None = 40  # a box of the page may hold any number, or none
    draws: float | int | None = 500
    seed: float | int | None = 0

    @property
    def terms(self) -> list[str]:
        return [line.strip() for line in self.constraints.splitlines() if line.strip()]


class Progress(NamedTuple):
    """Where a request stands."""

    words: str
    done: int = 0
    total: int = 0


class Moment(NamedTuple):
    """A feature's mean, wanted and found."""

    name: str
    wanted: float | None
    coefficient: Estimate | None  # λ; None where every text must have it, or none
    q: Estimate
    p: Estimate


class Part(NamedTuple):
    """A token of a text, and what it adds to −E as far as that can be foreseen, in nats."""

    text: str
    value: float


class Candidate(NamedTuple):
    """A text with its numbers."""

    parts: list[Part]  # its tokens where these are known without draws, else all of it as one
    log_q: float
    energy: float
    share: float  # of the weight of all


def heaviest(cloud: Cloud, parts: Callable[[list[int]], list[Part]] | None = None, most: int = 10) -> list[Candidate]:
    """The different texts of largest weight."""
    rows: dict[str, int] = {}
    for row in cloud.shares.argsort(descending=True, stable=True).tolist():
        rows.setdefault(cloud.texts[row], row)
    return [
        Candidate(
            [Part(text, 0.0)] if parts is None else parts(cloud.x.prefix(row)),
            *(float(column[row]) for column in (cloud.log_q, cloud.energy, cloud.shares)),
        )
        for text, row in list(rows.items())[:most]
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The answer."""

    asked: Asked
    what: str  # P, in one sentence
    words: list[NextWord]
    words_from: str  # how p's are known
    log_z: Estimate
    effective: EffectiveSamples | None
    moments: list[Moment]
    knobs: list[Knob]
    cloud: Cloud
    parts: Callable[[str, Allowance], list[Part]] | None  # a text's tokens; None where nothing is foreseen of them
    parts_mean: str  # what the numbers of a text's tokens are
    candidates: list[Candidate]
    notes: list[str] = field(default_factory=list)
