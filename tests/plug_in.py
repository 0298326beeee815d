"""What a user of ebar may write in a module of their own: one entry for each table, each added by one line.

`EBAR_PLUGINS=tests.plug_in ebar …` knows them all.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ebar.backbones import BACKBONES
from ebar.bounds import Amount, Count
from ebar.cli import COMMANDS
from ebar.data import DATA, TOKENISERS
from ebar.data.corpus import Corpus, ended_space
from ebar.data.tokenisers import Alphabet, Bytes
from ebar.energies.kinds import ENERGIES
from ebar.features import FEATURES
from ebar.features.feature import Feature
from ebar.features.functions import Predicate
from ebar.heads import HEADS
from ebar.objectives import OBJECTIVES
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.recipes import RECIPES
from ebar.recipes.recipe import Recipe, Row
from ebar.samplers import SAMPLERS
from ebar.samplers.importance import Importance
from ebar.types import Clock, Context, Distribution, Loss, Sequences, Target, Weighted


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Importance sampling, two batches at a time."""

    weighted: ClassVar[bool] = True
    batch_size: Count = 100

    def stream(
        self, target: Target, n: int, *, proposal: Distribution | None = None, context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Weighted]:  # fmt: skip
        own = Importance(batch_size=self.batch_size)
        for _ in range(2):
            yield from own.stream(target, -(-n // 2), proposal=proposal, context=context, generator=generator)


def palindrome(symbol: str) -> Feature:
    """KIND:SYMBOL, a text that reads the same backwards and holds the symbol."""
    return Predicate(lambda text: text == text[::-1] and symbol in text, name=f"palindrome with {symbol}")


class Rows(NamedTuple):
    """A state that remembers nothing but how many rows there are."""

    number: int

    def select(self, rows: Tensor) -> "Rows":
        return Rows(len(rows))


class LastToken(nn.Module):
    """Looks at the last token alone."""

    def __init__(self, vocabulary: int, *, hidden: Count = 8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary + 1, hidden)
        self.width = hidden

    def start(self, rows: int, context: Context | None = None) -> tuple[Tensor, Rows]:
        last = torch.full((rows,), self.embedding.num_embeddings - 1, device=self.embedding.weight.device)
        if context is not None:
            lengths = context.given.lengths
            last = context.given.tokens.gather(1, lengths[:, None] - 1)[:, 0].repeat_interleave(rows // len(lengths))
        return self.embedding(last), Rows(rows)

    def advance(self, tokens: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        return self.embedding(tokens), state


class Cooled(nn.Module):
    """A softmax at another temperature."""

    free_logits = True

    def __init__(self, width: int, vocabulary: int, *, temperature: Amount = 2.0):
        super().__init__()
        self.linear = nn.Linear(width, vocabulary)
        self.temperature = temperature

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.linear(hidden) / self.temperature
        return logits


class Costs(nn.Module):
    """A cost for each token, wherever it stands."""

    def __init__(self, *, vocabulary: int, scale: Amount = 1.0):
        super().__init__()
        self.cost = nn.Embedding(vocabulary, 1)
        self.scale = scale

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        cost: Tensor = self.scale * (self.cost(torch.where(x.mask(), x.tokens, 0))[:, :, 0] * x.mask()).sum(1)
        return cost


@dataclass(frozen=True, kw_only=True)
class Multiplied:
    """Maximum likelihood, several times over."""

    model: Distribution
    times: Amount = 2.0
    player: str = "model"

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        for loss in MaximumLikelihood(model=self.model).losses(batch, clock, generator=generator):
            yield loss._replace(value=self.times * loss.value)


class Inverted(Bytes):
    """Bytes, numbered from the last to the first."""

    @staticmethod
    def train(texts: Any, size: int | None = None) -> "Inverted":
        return Inverted()

    @staticmethod
    def read(fields: dict[str, Any]) -> "Inverted":
        return Inverted()

    def encode(self, text: str) -> list[int]:
        return [255 - token for token in super().encode(text)]

    def decode(self, tokens: list[int]) -> str:
        return super().decode([255 - token for token in tokens])

    def spellings(self) -> list[bytes | None]:
        return super().spellings()[::-1]

    def to_json(self) -> str:
        return '{"kind": "inverted"}'


@dataclass(frozen=True, kw_only=True)
class Countdown:
    """Numbers of ones, then a zero."""

    size: Count = 20
    """Training sequences."""

    kind = "countdown"

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        alphabet = Alphabet("01")
        space = ended_space(alphabet, 3, maximal_length)
        rows = [[1] * (number % 3) + [0, 2] for number in range(self.size)]
        tokens = torch.tensor([row + [0] * (4 - len(row)) for row in rows])
        some = Sequences(tokens, torch.tensor([len(row) for row in rows]))
        return Corpus(
            tokeniser=alphabet, space=space, source=self, parts=dict.fromkeys(("train", "validation", "test"), some)
        )


def squares(cell: Any, folder: Path) -> dict[str, Any]:
    return {"square": cell["seed"] ** 2}


def total(results: Sequence[Any]) -> list[Row]:
    value = float(sum(result["square"] for _, result in results))
    return [Row(name="sum of squares", value=value, low=None, high=None, document=5.0)]


def picture(rows: Sequence[Row], path: Path) -> None:
    path.write_text("<svg/>")


SQUARES = Recipe(
    title="Squares", source="a plug-in", grid=lambda scale: [{"seed": seed} for seed in range(3)], run=squares,
    figures=[total], picture=picture,
)  # fmt: skip


def greet(words: Sequence[str]) -> int:
    """say hello"""
    sys.stdout.write(f"hello {' '.join(words)}\n")
    return 0


SAMPLERS["pairs"] = Pairs
FEATURES["palindrome"] = palindrome
BACKBONES["last_token"] = LastToken
HEADS["cooled"] = Cooled
ENERGIES["costs"] = Costs
OBJECTIVES["multiplied"] = Multiplied
TOKENISERS["inverted"] = Inverted
DATA["countdown"] = Countdown
RECIPES["mine/squares"] = SQUARES
COMMANDS["greet"] = greet
