"""What `ebar gam` is told: the data, a hunch about features, and how each of the stages is to be done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ebar.config.run import Chosen


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One training of an autoregressive model, by Adam."""

    epochs: int
    """At most so many passes over the data."""
    batch_size: int
    """Sequences per step."""
    learning_rate: float
    """Of Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the epochs, or unchanged."""
    patience: int = 20
    """Stop after so many epochs in a row without a better validation loss."""
    patience_in_all: bool = False
    """Count those epochs over the whole training, not in a row."""
    clip: float | None = 1.0
    """Largest Euclidean norm of a gradient."""
    drop_last: bool = False
    """Leave out a last batch that is not full."""


@dataclass(frozen=True, kw_only=True)
class BasePhase(Phase):
    """How r is trained on D."""

    epochs: int = 120
    batch_size: int = 32
    learning_rate: float = 4e-3
    patience: int = 40


@dataclass(frozen=True, kw_only=True)
class StudentPhase(Phase):
    """How a fresh π is trained on the distilled sequences and D together."""

    epochs: int = 8
    batch_size: int = 128
    learning_rate: float = 4e-3


@dataclass(frozen=True, kw_only=True)
class ContinuationPhase(Phase):
    """The same for a π that begins with the weights of the model it is distilled from."""

    epochs: int = 4
    batch_size: int = 128
    learning_rate: float = 2e-3


@dataclass(frozen=True, kw_only=True)
class RefinementPhase(Phase):
    """How π is trained on D alone between two rounds, to learn what no feature tells."""

    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 2e-3
    patience: int = 40


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How many sequences of P_λ π learns from."""

    size: int = 20_000
    """Sequences to train on."""
    validation: int = 2000
    """Sequences to stop early by."""
    proposal: Literal["base", "look_ahead"] = "look_ahead"
    """What the sampler proposes from: r, or r steered by the automata of the features."""


@dataclass(frozen=True, kw_only=True)
class Gam:
    """Everything that decides the result."""

    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    data: Chosen
    features: tuple[str, ...]  # terms KIND:ARGUMENT, ! in front where absence counts
    backbone: Chosen
    head: Chosen = field(default_factory=lambda: Chosen(kind="softmax", options={}))
    base: Phase = field(default_factory=BasePhase)
    matching: Chosen = field(default_factory=lambda: Chosen(kind="newton", options={}))
    regime: Literal["two_stage", "cyclical"] = "two_stage"
    rounds: int = 1  # of λ, distillation and π; from the second on π takes r's place, refined on D
    fresh: bool = False  # whether the first π begins with random weights, not with r's
    distillation: Distillation = field(default_factory=Distillation)
    sampler: Chosen = field(default_factory=lambda: Chosen(kind="quasi_rejection", options={}))
    student: Phase = field(default_factory=StudentPhase)
    student_backbone: Mapping[str, Any] = field(default_factory=dict)  # where a fresh π's differs from r's
    continuation: Phase = field(default_factory=ContinuationPhase)
    refinement: Phase = field(default_factory=RefinementPhase)
    exact: bool = False  # cross-entropies over the whole language too, where it is known and finite
