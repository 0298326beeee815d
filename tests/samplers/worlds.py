"""Targets small enough that everything about them is known by enumeration."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.features.counts import NgramCount
from ebar.features.feature import Feature, Features
from ebar.features.regular import Motif
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space, context_rows, spread

ENDING = Space(vocabulary=3, length=4, end=0)  # 15 sequences of 1 to 4 tokens
FIXED = Space(vocabulary=2, length=4)  # 16 sequences of 4 tokens
SPACES = {"ending": ENDING, "fixed": FIXED}


class Rugged:
    """A table of energies, one for every condition and every string of at most `length` tokens: prefixes too."""

    def __init__(self, space: Space, conditions: int, scale: float, generator: Generator):
        self.space = space
        strings = sum(space.vocabulary**length for length in range(space.length + 1))
        self.table = scale * torch.randn(conditions, strings, dtype=torch.float64, generator=generator)

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        return self.table[condition_of(x, context), codes(x, self.space)]

    def log_bound(self) -> float:
        return float(-self.table.min())


def condition_of(x: Sequences, context: Context | None) -> Tensor:
    each = spread(context, len(x.lengths))
    return torch.zeros_like(x.lengths) if each is None else each.given.tokens[:, 0]


def codes(x: Sequences, space: Space) -> Tensor:
    """A number for every string of at most `length` tokens: shorter ones first."""
    place = torch.arange(x.tokens.shape[1])
    digits = torch.where(x.mask(), x.tokens, 0) * space.vocabulary**place
    shorter = torch.tensor([sum(space.vocabulary**k for k in range(m)) for m in range(space.length + 1)])
    return shorter[x.lengths] + digits.sum(1)


@dataclass
class World:
    target: Tilted
    other: Tabular  # a proposal that is not the base
    conditions: int

    @property
    def space(self) -> Space:
        return self.target.space

    def context(self, repeats: int) -> Context:
        """Every condition `repeats` times: as many independent repetitions."""
        given = torch.arange(self.conditions).repeat_interleave(repeats)[:, None]
        return Context(Sequences(given, torch.ones(len(given), dtype=torch.long)))

    @property
    def conditional(self) -> Context | None:
        return self.context(1) if self.conditions > 1 else None

    @torch.no_grad()
    def scores(self, context: Context | None = None) -> Tensor:
        """P of every sequence, one row for each row of the context."""
        x = whole_space(self.space, context)
        return self.target.log_score(x, context).view(context_rows(context), -1).exp()

    def index(self, x: Sequences) -> Tensor:
        """Which sequence of the space each row is."""
        everything = codes(whole_space(self.space), self.space)
        order = everything.argsort()
        return order[torch.searchsorted(everything[order], codes(x, self.space))]


class Favoured:
    """The first token is the condition: a feature that looks at its context."""

    name, low, high = "favoured", 0.0, 1.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        return (x.tokens[:, 0] == condition_of(x, context)).double()


def linear_world(space: Space, *, conditions: int = 1, seed: int = 1) -> World:
    """Tilted by features, one of which an automaton can follow: a target every sampler of the table can serve."""
    plain = world(space, conditions=conditions, seed=seed)
    alphabet = "".join(str(token) for token in range(space.vocabulary))
    features: list[Feature] = [
        Motif(motif="11", alphabet=alphabet, end=space.end),
        NgramCount(ngram="1", alphabet=alphabet, longest=space.length, end=space.end),
        Favoured(),
    ]
    energy = Linear(Features(features), torch.tensor([1.2, -0.5, 0.8], dtype=torch.float64))
    return World(Tilted(plain.target.base, energy), plain.other, conditions)


def world(space: Space, *, conditions: int = 1, seed: int = 0, energy: float = 0.7, scale: float = 0.7) -> World:
    generator = Generator().manual_seed(seed)
    base = Tabular.random(space, conditions=conditions, scale=scale, generator=generator)
    other = Tabular.random(space, conditions=conditions, scale=scale, generator=generator)
    return World(Tilted(base, Rugged(space, conditions, energy, generator)), other, conditions)


class ScriptedCoin:
    """In the place of `accept.coin`: the verdicts given, one after the other."""

    def __init__(self, verdicts: list[bool]):
        self.verdicts = verdicts
        self.tossed = 0

    def __call__(self, log_probability: Tensor, generator: Generator) -> Tensor:
        size = log_probability.numel()
        self.tossed += size
        return torch.tensor(self.verdicts[self.tossed - size : self.tossed]).view(log_probability.shape)
