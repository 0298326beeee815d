"""Small systems whose every quantity is known by enumeration."""

from typing import NamedTuple

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.types import Context, Sequences, Space


class Starts:
    """1 where the first token is `token`."""

    low, high = 0.0, 1.0

    def __init__(self, token: int):
        self.token = token
        self.name = f"starts with {token}"

    def __call__(self, x: Sequences, context: Context | None = None) -> torch.Tensor:
        return (x.tokens[:, 0] == self.token).double()


class Length:
    """The number of tokens, the end included."""

    low, high, name = 1.0, 4.0, "length"

    def __call__(self, x: Sequences, context: Context | None = None) -> torch.Tensor:
        return x.lengths.double()


class Small(NamedTuple):
    base: Tabular
    other: Tabular
    features: Features
    target: Tilted
    context: Context | None


def small(context: Context | None) -> Small:
    generator = torch.Generator().manual_seed(3)
    space = Space(3, 4, end=2)
    conditions = 1 if context is None else 2
    base, other = (Tabular.random(space, conditions=conditions, generator=generator) for _ in range(2))
    features = Features([Starts(0), Length()])
    target = Tilted(base, Linear(features, torch.tensor([1.2, -0.7], dtype=torch.float64)))
    return Small(base, other, features, target, context)


@pytest.fixture(params=["unconditional", "conditional"])
def system(request: pytest.FixtureRequest) -> Small:
    if request.param == "unconditional":
        return small(None)
    return small(Context(Sequences(torch.tensor([[1], [0], [1]]), torch.tensor([1, 1, 1]))))
