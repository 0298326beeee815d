"""How the stages of a GAM are done, and what they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ebar.bounds import Amount, Count
from ebar.data.corpus import Corpus
from ebar.features.feature import Features
from ebar.models.tilted import Tilted
from ebar.training.course import Training
from ebar.training.distillation import Distilled
from ebar.training.moment_matching.matching import Fitted
from ebar.training.optimisers import Adam, Constant, Cosine
from ebar.training.train import History
from ebar.types import Sequences, Stepwise

FLOOR = 0.02  # of the cosine schedule, as a share of the learning rate


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One training of an autoregressive model, by Adam."""

    epochs: Count
    """At most so many passes over the data."""
    batch_size: Count
    """Sequences per step."""
    learning_rate: float
    """Of Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the epochs, or unchanged."""
    patience: Count = 20
    """Stop after so many epochs in a row without a better validation loss."""
    patience_in_all: bool = False
    """Count those epochs over the whole training, not in a row."""
    clip: Amount | None = 1.0
    """Largest Euclidean norm of a gradient."""
    drop_last: bool = False
    """Leave out a last batch that is not full."""

    def arguments(self) -> dict[str, Any]:
        """As `train` takes them: training, optimiser and schedule."""
        return {
            "training": Training(
                epochs=self.epochs, batch_size=self.batch_size, patience=self.patience, clip=self.clip,
                patience_in_all=self.patience_in_all, drop_last=self.drop_last,
            ),
            "optimiser": Adam(learning_rate=self.learning_rate),
            "schedule": Cosine(floor=FLOOR) if self.schedule == "cosine" else Constant(),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BasePhase(Phase):
    """How r is trained on D."""

    epochs: Count = 120
    batch_size: Count = 32
    learning_rate: float = 4e-3
    patience: Count = 40


@dataclass(frozen=True, kw_only=True)
class StudentPhase(Phase):
    """How a fresh π is trained on the distilled sequences and D together."""

    epochs: Count = 8
    batch_size: Count = 128
    learning_rate: float = 4e-3


@dataclass(frozen=True, kw_only=True)
class ContinuationPhase(Phase):
    """The same for a π that begins with the weights of the model it is distilled from."""

    epochs: Count = 4
    batch_size: Count = 128
    learning_rate: float = 2e-3


@dataclass(frozen=True, kw_only=True)
class RefinementPhase(Phase):
    """How π is trained on D alone between two rounds, to learn what no feature tells."""

    epochs: Count = 40
    batch_size: Count = 32
    learning_rate: float = 2e-3
    patience: Count = 40


def forecast(
    rows: int, base: Phase, rest: "Distillation", pi: Phase, refinement: Phase, rounds: int
) -> dict[str, float]:
    """How much work each part is, at most: sequences that a model reads or makes, learning from one being three.

    λ is taken to need as many draws as are distilled. It is a guess for the time left, and nothing else.
    """
    parts = {"r": 3.0 * base.epochs * rows}
    for number in range(1, rounds + 1):
        own = {
            "lambda": rest.size,
            "distilled-validation": rest.validation,
            "distilled": rest.size,
            "pi": 3 * pi.epochs * (rest.size + rows),
            "refined": 3 * refinement.epochs * rows if number < rounds else 0,
        }
        parts |= {f"round-{number}/{name}": float(work) for name, work in own.items()}
    return parts


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How many sequences of P_λ π learns from."""

    size: Count = 20_000
    """Sequences to train on."""
    validation: Count = 2000
    """Sequences to stop early by."""
    proposal: Literal["base", "look_ahead"] = "look_ahead"
    """What the sampler proposes from: r, or r steered by the automata of the features."""


@dataclass(frozen=True, kw_only=True)
class GamRound:
    """What a round began with and what it made."""

    base: Stepwise  # what it began with: r, from the second round on π refined on the data
    teacher: Stepwise  # the model that λ was fitted to: the base or, in cyclical training, the last copy of π
    fitted: Fitted
    distilled: Distilled  # how the draws were made, and how near they are to P_λ
    draws: Sequences  # of P_λ
    student: Stepwise  # π
    histories: Mapping[str, History]  # of its trainings: "π" and, where another round follows, "π refined on the data"

    def tilted(self, features: Features) -> Tilted:
        """P_λ."""
        return self.fitted.tilted(self.teacher, features)


@dataclass(frozen=True, kw_only=True)
class GamParts:
    """What a GAM was made of, and how."""

    data: Corpus
    features: Features
    rounds: tuple[GamRound, ...]
    seed: int
    settings: Mapping[str, Any]  # its arguments, as plain data
    config: str  # what the folder keeps as config.yaml
    environment: Mapping[str, Any]  # where it was made
    seconds: Mapping[str, float]  # of each stage
