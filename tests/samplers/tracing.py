"""Every random choice of a sampler replaced by a walk through all of them, each with its probability.

What a sampler does on average is then a finite sum, known to rounding: no Monte Carlo. The idea is genlm-control's.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch
from torch import Generator, Tensor

from ebar.models.ngram import Tabular
from ebar.models.stepwise import ancestral
from ebar.samplers import metropolis, smc
from ebar.samplers.importance import RESAMPLERS, at_offsets
from ebar.types import Context, Sequences

Result = TypeVar("Result")


class Tracer:
    def __init__(self) -> None:
        self.script: list[int] = []
        self.pending: list[list[int]] = []
        self.position = 0
        self.probability = 1.0

    def every_path(self, run: Callable[[], Result]) -> Iterator[tuple[float, Result]]:
        """The results of all possible runs, with their probabilities."""
        self.pending = [[]]
        while self.pending:
            self.script, self.position, self.probability = self.pending.pop(), 0, 1.0
            result = run()
            yield self.probability, result

    def pick(self, probabilities: list[float]) -> int:
        if self.position == len(self.script):
            possible = [option for option, probability in enumerate(probabilities) if probability > 0]
            self.pending += [[*self.script, option] for option in possible[1:]]
            self.script.append(possible[0])
        choice = self.script[self.position]
        self.position += 1
        self.probability *= probabilities[choice]
        return choice

    def tokens(self, log_probs: Tensor, generator: Generator) -> Tensor:
        return torch.tensor([self.pick(row) for row in torch.softmax(log_probs, 1).tolist()], dtype=torch.long)

    def coin(self, log_probability: Tensor, generator: Generator) -> Tensor:
        heads = log_probability.exp().clamp(max=1.0).tolist()
        return torch.tensor([bool(self.pick([1 - p, p])) for p in heads])

    def multinomial(self, log_weights: Tensor, n: int, generator: Generator) -> Tensor:
        return torch.tensor([[self.pick(row) for _ in range(n)] for row in torch.softmax(log_weights, 1).tolist()])

    def systematic(self, log_weights: Tensor, n: int, generator: Generator) -> Tensor:
        """The choice is constant in the offset between the places where a cumulated weight meets a point."""
        offsets = []
        for weights in torch.softmax(log_weights, 1):
            edges = torch.cat([torch.tensor([0.0, 1.0]).double(), (n * weights.cumsum(0)) % 1]).sort().values
            widths = edges.diff()
            interval = self.pick(torch.where(widths > 1e-12, widths, 0.0).tolist())
            offsets.append(float(edges[interval] + edges[interval + 1]) / 2)
        return at_offsets(log_weights, n, torch.tensor(offsets, dtype=torch.float64))


class TracedTabular(Tabular):
    tracer: Tracer

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Tensor]:
        return ancestral(self, n, context, generator=generator, choose=self.tracer.tokens)

    def traced_by(self, tracer: Tracer) -> "TracedTabular":
        self.tracer = tracer
        return self


def traced(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    """A tracer in the place of all the randomness of samplers."""
    tracer = Tracer()
    for module in (metropolis, smc):
        monkeypatch.setattr(module, "draw_tokens", tracer.tokens)
    monkeypatch.setattr(metropolis, "coin", tracer.coin)
    monkeypatch.setitem(RESAMPLERS, "systematic", tracer.systematic)
    monkeypatch.setitem(RESAMPLERS, "multinomial", tracer.multinomial)
    return tracer
