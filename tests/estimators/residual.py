"""Residual models small enough to enumerate: a tabular q and a table of energies, in several conditions."""

from typing import NamedTuple

import torch
from torch import Tensor

from ebar.estimators import exact
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Context, Sequences, Space, spread

FIXED, ENDED = Space(5, 4), Space(4, 4, end=2)


class TableEnergy:
    """E(x, C) looked up: x as a number in base |vocabulary| + 1, the condition being C's first token."""

    def __init__(self, table: Tensor, space: Space):
        self.table, self.space = table, space

    def index(self, x: Sequences) -> Tensor:
        index = torch.zeros_like(x.lengths)
        for column, counts in zip(x.tokens.T, x.mask().T, strict=True):
            index = torch.where(counts, index * (self.space.vocabulary + 1) + column + 1, index)
        return index

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        given = spread(context, len(x.lengths))
        condition = torch.zeros_like(x.lengths) if given is None else given.given.tokens[:, 0]
        return self.table[condition, self.index(x)]


class Residual(NamedTuple):
    q: Tabular
    energy: TableEnergy
    context: Context  # a row for each condition

    @property
    def joint(self) -> Tilted:
        return Tilted(self.q, self.energy)

    @property
    def everything(self) -> Sequences:
        return all_sequences(self.q.space)

    def log_q(self) -> Tensor:
        """Of every sequence in every condition."""
        return exact.log_scores(self.q, self.context).detach()

    def energies(self) -> Tensor:
        return exact.table(
            lambda x: self.energy(x, self.context), self.q.space, self.context, device=torch.device("cpu")
        )

    def log_z(self) -> Tensor:
        return exact.log_z(self.joint, self.context).detach()


def conditions(rows: Tensor) -> Context:
    return Context(Sequences(rows[:, None], torch.ones_like(rows)))


def residual(space: Space = FIXED, *, rows: int = 3, scale: float = 1.0, seed: int = 11) -> Residual:
    generator = torch.Generator().manual_seed(seed)
    q = Tabular.random(space, conditions=rows, generator=generator).requires_grad_(False)
    table = scale * torch.randn(
        rows, (space.vocabulary + 1) ** (space.length + 1), dtype=torch.float64, generator=generator
    )
    return Residual(q, TableEnergy(table, space), conditions(torch.arange(rows)))
