"""How a model is trained: for how long, in what batches, and how often it is evaluated."""

from dataclasses import dataclass, field
from pathlib import Path

from ebar.bounds import Amount, Count
from ebar.store.differences import LATER, PASSING


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long, in what batches, and how often to evaluate."""

    epochs: Count = 100
    """At most so many passes over the data."""
    max_steps: Count | None = field(default=None, metadata=LATER)
    """At most so many steps too; a schedule that ends with the training ends there."""
    max_minutes: Amount | None = field(default=None, metadata=PASSING)
    """Stop after so many minutes, as after an interruption: the same command goes on, for as long again."""
    batch_size: Count = 64
    """Sequences per step, over all processes together; `accumulate` times their number must divide it."""
    batch_tokens: Count | None = None
    """In place of `batch_size`: tokens per step at most, padding counted, in batches of sequences of like length."""
    held_out_batch: Count | None = None
    """Sequences of held-out data computed together, or tokens where `batch_tokens` is given; by default no more than in
    training, and at least 1,024 sequences of a language or of lines."""
    accumulate: Count = 1
    """Parts a batch is computed in, to save memory; the result does not change."""
    shard: Count = field(default=1, metadata=PASSING)
    """Processes over which weights, gradients and the optimiser's state are spread, for a model that does not fit in
    one (FSDP2); the result does not change."""
    replicate: Count | None = field(default=None, metadata=PASSING)
    """Groups of `shard` processes, each of which has all the weights; by default as many as there are."""
    patience: Count = 10
    """Stop after so many evaluations in a row without a better validation loss."""
    patience_in_all: bool = False
    """Count those evaluations over the whole run, not in a row."""
    patience_excluding: Count | None = None
    """Stop as soon as the validation loss is above the best of all evaluations but the last so many before it, as
    AWD-LSTM's fine-tuning does after 5."""
    evaluate_every: Count = 1
    """Epochs between evaluations."""
    evaluate_steps: Count | None = field(default=None, metadata=LATER)
    """In place of `evaluate_every`: steps between evaluations."""
    checkpoint_every: Count = 100
    """Steps between checkpoints."""
    clip: Amount | None = 0.25
    """Largest Euclidean norm of a gradient."""
    autocast: bool = field(default=False, metadata=LATER)
    """Compute the network's matrix products in bfloat16, where the machine has it; weights and figures stay as exact as
    they are."""
    drop_last: bool = False
    """Leave out a last batch that is not full."""
    shuffle_block: Count | None = field(default=None, metadata=LATER)
    """Shuffle blocks of so many neighbouring rows, and rows among 16 blocks at a time: data larger than memory are read
    in long stretches. By default all rows are shuffled."""
    start: Path | None = None
    """Folder of a run whose best weights to begin with; by default they are drawn at random."""
    maximal_length: Count | None = None
    """Longest sequence the model can produce, its end included; by default 2n + 1 for sequences of n symbols."""
    tensorboard: bool = False
    """Write TensorBoard files beside metrics.jsonl (extra `log`)."""
