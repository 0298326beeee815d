"""Models in memory of which all is known, as a shelf that a playground can open."""

import math
import threading
from typing import Any
from unittest.mock import Mock

import torch
from torch import Tensor, nn

from ebar.data.chunks import Chunks
from ebar.data.tokenisers import Alphabet, reading_of_space
from ebar.errors import UserError
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.journey import Residual
from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.serve.catalogue import Opened, Place, Suggested
from ebar.types import Context, Sequences, Space


def coin(length: int, space: Space | None = None) -> Tabular:
    """Every string of a's and b's is as likely as any other."""
    space = space or Space(2, length)
    return Tabular(space, torch.zeros(1, number_of_prefixes(space), space.vocabulary, dtype=torch.float64))


class Slow(Tabular):
    """Counts its steps; each waits at the gate."""

    def __init__(self, length: int):
        space = Space(2, length)
        super().__init__(space, torch.zeros(1, number_of_prefixes(space), 2, dtype=torch.float64))
        self.gate, self.began, self.steps = threading.Event(), threading.Event(), 0

    def close_gate(self) -> None:
        """As at first."""
        self.gate.clear()
        self.began.clear()

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.steps += 1
        self.began.set()
        self.gate.wait()
        return super().advance(tokens, state)


class FirstIsB(nn.Module):
    """E = log 2 where the first token is b, 0 elsewhere."""

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        return math.log(2) * (x.tokens[:, 0] == 1).double()


def opened(model: Tabular) -> Opened:
    return Opened(model=model, reading=reading_of_space(Alphabet("ab"), model.space))


def residual(length: int) -> Residual:
    chunks = Mock(spec=Chunks)  # nothing here is trained
    return Residual(base=Base(q=coin(length), tokeniser=Alphabet("ab")), energy=FirstIsB(), chunks=chunks)


class InMemory:
    """A shelf."""

    def __init__(self, **models: Opened):
        self.models = models

    def places(self) -> dict[str, Place]:
        return {name: Place(kind="train", at=name, about=f"The model {name}.") for name in self.models}

    def open(self, name: str) -> Opened:
        if name not in self.models:
            raise UserError(f"There is no model called {name!r}.")
        return self.models[name]

    def suggested(self, name: str) -> Suggested | None:
        return None
