"""Weighted texts, and every figure that is read off them: log Z, effective draws, moments at any λ, next words."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.effective_samples import EffectiveSamples, effective_samples, same_draws
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.maths.log_space import normalised
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
