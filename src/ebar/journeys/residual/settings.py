"""How the stages of a residual model are done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ChunksData:
    """Text, cut into prefixes and continuations (.txt, .gz, .xz)."""

    train: Path | None = None
    """Training text; by default that of the base, where it is a run of ebar's."""
    validation: Path | None = None
    """Held-out text to choose weights by; without a file, the last tenth of the training chunks."""
    test: Path | None = None
    """Held-out text for evaluation; without a file, the validation text."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""
    column: str = "text"
    """The column of the data set that holds the text."""
    prefix: int = 120
    """Tokens of the base that are given."""
    continuation: int = 40
    """Tokens that follow and are modelled."""
    chunks: int | None = None
    """At most so many training chunks, evenly spread over the text."""
    validation_chunks: int = 1000
    """At most so many to choose weights by."""
    test_chunks: int = 1000
    """At most so many for evaluation."""


@dataclass(frozen=True, kw_only=True)
class NegativesDraws:
    """The base's own continuations of the training prefixes, on disk."""

    draws: int | None = None
    """For each prefix; those that one epoch does not use are the next one's. By default as many as are used."""
    refresh: bool = False
    """Draw new ones for every epoch: what was seen once cannot be learnt by heart."""
    at_once: int = 256
    """Draws computed together: more are faster and take more memory."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How an energy is trained."""

    form: Literal["binary", "ranking"] = "binary"
    """Binary: real or drawn, each by itself, so that log Z is learnt too. Ranking: which of these is real."""
    negatives: int = 1
    """Drawn continuations beside each real one."""
    epochs: int = 3
    """At most so many passes over the data."""
    batch_size: int = 32
    """Chunks per step, each with its negatives."""
    learning_rate: float = 1e-4
    """Of AdamW, after the warm-up; it then falls along half a cosine to a tenth."""
    weight_decay: float = 0.01
    """Of AdamW."""
    warmup: float = 0.1
    """Share of all steps over which the learning rate rises."""
    clip: float | None = 1.0
    """Largest Euclidean norm of a gradient."""
    patience: int = 3
    """Stop after so many evaluations in a row without a better held-out loss."""
    evaluations: int = 1
    """In each epoch, on held-out chunks."""
    accumulate: int = 1
    """Parts a batch is computed in, to save memory; the result does not change."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """A first evaluation, once the energy is trained; `ebar residual evaluate` makes others."""

    prefixes: int = 50
    """Test prefixes; 0 for no evaluation."""
    draws: int = 100
    """Of the base, for each of them; below 100 nothing is established."""
