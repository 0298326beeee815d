"""What `ebar train` is told: frozen dataclasses, read from YAML and flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt

from ebar.backbones import BACKBONES
from ebar.config.options import add_kind, group, parse, parser
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.objectives import OBJECTIVES
from ebar.training.optimisers import OPTIMISERS
from ebar.training.schedules import SCHEDULES


@dataclass(frozen=True, kw_only=True)
class LanguageData:
    """Sequences drawn from a language whose entropy is known."""

    motif: str | None = None
    """Every sequence contains this string."""
    expression: str | None = None
    """Every sequence matches this regular expression, from its first symbol to its last."""
    alphabet: str = "01"
    """The symbols, in the order of their tokens."""
    length: int = 30
    """Symbols in a sequence, the end not counted."""
    presence: float = 1.0
    """Share of sequences with the motif; the others are drawn from those without it."""
    stop: float | None = None
    """Chance to end before each symbol, for sequences of variable length; by default all have `length` symbols."""
    size: int = 500
    """Training sequences. Validation has a quarter as many, at least 500 (or as many as these), at most 2,000."""
    test_size: int = 5000
    """Held-out sequences for `ebar evaluate`."""


@dataclass(frozen=True, kw_only=True)
class LinesData:
    """Your own sequences, one per line (.txt, .gz, .xz)."""

    train: Path
    """Training sequences."""
    validation: Path | None = None
    """Held-out sequences for early stopping; without a file, every fifth training line."""
    test: Path | None = None
    """Held-out sequences for `ebar evaluate`; without a file, the validation sequences."""
    alphabet: str | None = None
    """The symbols, in the order of their tokens; by default those of the training file."""


TokeniserKind = Literal["characters", "words", "bpe", "bytes"]


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Text as one stream of tokens, cut into windows (.txt, .gz, .xz; any file as bytes)."""

    train: Path | None = None
    """Training text."""
    validation: Path | None = None
    """Held-out text for early stopping; without a file, the last tenth of the training windows."""
    test: Path | None = None
    """Held-out text for `ebar evaluate`; without a file, the validation text."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote: its splits train,
    validation and test."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""
    column: str = "text"
    """The column of the data set that holds the text."""
    tokeniser: TokeniserKind = "bytes"
    """What a token is."""
    vocabulary: int | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training text."""
    length: int = 128
    """Tokens in a window."""
    cache: Path | None = None
    """Folder for the tokens of a training text that is larger than memory: written once, read as needed."""


@dataclass(frozen=True, kw_only=True)
class ParallelData:
    """Sentences and their translations: one file with tabs, or two files of as many lines (.txt, .tsv, .gz, .xz)."""

    train: Path | None = None
    """Training pairs; with `train_target`, their sources."""
    train_target: Path | None = None
    """Where there are two files, the translations."""
    validation: Path | None = None
    """Held-out pairs for early stopping; without a file, every twentieth training pair."""
    validation_target: Path | None = None
    """Their translations."""
    test: Path | None = None
    """Held-out pairs for `ebar evaluate`; without a file, the validation pairs."""
    test_target: Path | None = None
    """Their translations."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote: its splits train,
    validation and test."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""
    source_column: int | str = 0
    """What is translated: the column of a file with tabs, counted from 0, or the name of a data set's column
    (translation.de)."""
    target_column: int | str = 1
    """What it is translated into."""
    tokeniser: TokeniserKind = "bpe"
    """What a token is."""
    vocabulary: int | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
    shared: bool = True
    """One tokeniser for both sides, so that they can share their vectors."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training pairs."""
    length: int | None = None
    """Longest training or validation sentence on either side, in tokens, its end included."""
    too_long: Literal["skip", "error"] = "skip"
    """Whether longer pairs are left out, with a warning that counts them, or are an error."""
    cache: Path | None = None
    """Folder for the tokens of training pairs that are larger than memory: written once, read as needed."""


@dataclass(frozen=True, kw_only=True)
class ImagesData:
    """Images of one size (idx files, .npz archives, folders of PNG files)."""

    train: Path
    """Training images."""
    validation: Path | None = None
    """Held-out images for early stopping; without a file, the last tenth of the training images."""
    test: Path | None = None
    """Held-out images for `ebar evaluate`; without a file, the validation images."""
    binary: bool = False
    """Black or white: one draw for each pixel, once and for all, with its intensity for a probability."""
    binary_seed: int = 0
    """Of those draws."""


DATA = {
    "language": LanguageData, "lines": LinesData, "text": TextData, "parallel": ParallelData, "images": ImagesData,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long, and how often to look."""

    epochs: int = 100
    """At most so many passes over the data."""
    batch_size: int = 64
    """Sequences per step, over all processes together."""
    batch_tokens: int | None = None
    """In place of `batch_size`: tokens per step at most, padding counted, in batches of sequences of like length."""
    accumulate: int = 1
    """Parts a batch is computed in, to save memory; the result does not change."""
    patience: int = 10
    """Stop after so many evaluations in a row without a better validation loss."""
    patience_in_all: bool = False
    """Count those evaluations over the whole run, not in a row."""
    evaluate_every: int = 1
    """Epochs between evaluations."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""
    clip: float | None = 0.25
    """Largest Euclidean norm of a gradient."""
    drop_last: bool = False
    """Leave out a last batch that is not full."""
    start: Path | None = None
    """Folder of a run whose best weights to begin with; by default they are drawn at random."""
    maximal_length: int | None = None
    """Longest sequence the model can produce, its end included; by default 2n + 1 for sequences of n symbols."""
    tensorboard: bool = False
    """Write TensorBoard files beside metrics.jsonl (extra `log`)."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An entry of a table and its options."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides a run's result."""

    seed: int
    device: str
    dtype: str
    data: Chosen
    backbone: Chosen
    head: Chosen
    objective: Chosen
    optimiser: Chosen
    schedule: Chosen
    training: Training


# What a backbone is told by the data.
FROM_DATA = ("source_vocabulary", "image_height", "image_width", "channels")

# Key → table, the default, and the arguments that `build` provides.
CHOICES: dict[str, tuple[Mapping[str, Any], str, tuple[str, ...]]] = {
    "data": (DATA, "language", ()),
    "backbone": (BACKBONES, "lstm", ("vocabulary", *FROM_DATA)),
    "head": (HEADS, "softmax", ("vocabulary", "width")),
    "objective": (OBJECTIVES, "maximum_likelihood", ("model", "player")),
    "optimiser": (OPTIMISERS, "adam", ()),
    "schedule": (SCHEDULES, "constant", ()),
}


def run_parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """The options of a run; those of a table's entry are declared once the entry is known."""
    options = parser(words, command, purpose, example)
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of data, weights, order and dropout")
    options.add_argument("--device", type=str, default="cpu", help="where to compute, such as cpu or cuda")
    options.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="of the weights")
    for key, (table, default, provided) in CHOICES.items():
        add_kind(options, words, key, table, default, skip=provided)
    options.add_class_arguments(Training, "training")
    return options


def as_run(arguments: Namespace) -> Run:
    """Parsed options as the frozen configuration."""
    chosen = {}
    for key in CHOICES:
        options = group(arguments, key)
        chosen[key] = Chosen(kind=options.pop("kind"), options=options)
    training = Training(**group(arguments, "training"))
    return Run(seed=arguments.seed, device=arguments.device, dtype=arguments.dtype, training=training, **chosen)


def read_run(path: Path) -> Run:
    """The configuration a run was started with."""
    if not path.exists():
        raise UserError(f"There is no run in {path.parent}: it has no {path.name}.")
    words = ["--config", str(path)]
    return as_run(parse(run_parser(words, "train", "", ""), words))
