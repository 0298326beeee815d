"""Settings of the stages of a residual model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.bounds import Amount, Count, Natural, NonNegative, Share


@dataclass(frozen=True, kw_only=True)
class NegativesDraws:
    """The base's own continuations of the training prefixes, on disk."""

    draws: Count | None = None
    """For each prefix; each epoch uses the next ones of them. By default as many as one epoch uses."""
    refresh: bool = False
    """Draw new ones for every epoch, so that they cannot be memorised."""
    at_once: Count = 256
    """Draws computed together: more are faster and take more memory."""
    folder: Path | None = None
    """Where they are stored, by default within the run: several energies of one base can share their negatives."""
    seed: Natural | None = None
    """Of these draws; by default that of the run."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How an energy is trained."""

    form: Literal["binary", "ranking"] = "binary"
    """Binary: real or drawn, each by itself, so that log Z is learnt too. Ranking: which of these is real."""
    chunks: Count | None = None
    """At most so many of the training chunks, evenly spread; a warm-up reads them all."""
    negatives: Count = 1
    """Drawn continuations beside each real one."""
    epochs: Count = 3
    """At most so many passes over the data."""
    batch_size: Count = 32
    """Chunks per step, each with its negatives."""
    learning_rate: Amount = 1e-4
    """Of AdamW, after the warm-up; it then falls along half a cosine to a tenth."""
    weight_decay: NonNegative = 0.01
    """Of AdamW."""
    warmup: Share = 0.1
    """Share of all steps over which the learning rate rises."""
    clip: Amount | None = 1.0
    """Largest Euclidean norm of a gradient."""
    patience: Count = 3
    """Stop after so many evaluations in a row without a better held-out loss."""
    evaluations: Count = 1
    """In each epoch, on held-out chunks."""
    accumulate: Count = 1
    """Parts a batch is computed in, to save memory; the result does not change."""
    checkpoint_every: Count = 100
    """Steps between checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """A first evaluation, once the energy is trained; `ebar residual evaluate` makes others."""

    prefixes: Natural = 50
    """Test prefixes; 0 for no evaluation."""
    draws: Count = 100
    """Of the base, for each of them; below 100 nothing is established."""
    folder: Path | None = None
    """Where these draws are stored, by default within the run: several energies of one base can share them."""
    seed: Natural | None = None
    """Of these draws; by default that of the run."""
    last_rows: Natural = 20
    """Prefixes whose last token is compared."""
    last_candidates: Count | None = 64
    """Tokens that are scored there one by one, the likeliest under the base, the others by a sample; null for all."""
