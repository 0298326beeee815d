"""The kinds of data a model can be trained on, and what each is told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.bounds import Count


@dataclass(frozen=True, kw_only=True)
class LanguageData:
    """Sequences drawn from a language whose entropy is known."""

    motif: str | None = None
    """Every sequence contains this string."""
    expression: str | None = None
    """Every sequence matches this regular expression, from its first symbol to its last."""
    alphabet: str = "01"
    """The symbols, in the order of their tokens."""
    length: Count = 30
    """Symbols in a sequence, the end not counted."""
    presence: float = 1.0
    """Share of sequences with the motif; the others are drawn from those without it."""
    stop: float | None = None
    """Chance to end before each symbol, for sequences of variable length; by default all have `length` symbols."""
    size: Count = 500
    """Training sequences. Validation has a quarter as many, at least 500 (or as many as these), at most 2,000."""
    test_size: Count = 5000
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
    vocabulary: Count | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training text."""
    length: Count = 128
    """Tokens in a window."""
    limit: Count | None = None
    """Most tokens of the training text, from its beginning on; by default all."""
    held_out_limit: Count | None = None
    """Most tokens of the validation text and of the test text; by default all."""
    windows: int | None = None
    """Most training windows, evenly spread over the text; by default all."""
    held_out_windows: int | None = None
    """Most windows of the validation text and of the test text, evenly spread; by default all."""
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
    vocabulary: Count | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
    shared: bool = True
    """One tokeniser for both sides, so that they can share their vectors."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training pairs."""
    length: Count | None = None
    """Longest training or validation sentence on either side, in tokens, its end included."""
    limit: Count | None = None
    """Most training pairs, drawn by the run's seed; by default all."""
    held_out_limit: Count | None = None
    """Most validation pairs and test pairs, evenly spaced; by default all."""
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
    limit: Count | None = None
    """Most training images, drawn by the run's seed; by default all."""
    validation_size: Count | None = None
    """Without a validation file, so many of the last training images in place of a tenth."""
    binary: bool = False
    """Black or white: one draw for each pixel, once and for all, with its intensity for a probability."""
    binary_seed: int = 0
    """Of those draws."""


DATA = {
    "language": LanguageData, "lines": LinesData, "text": TextData, "parallel": ParallelData, "images": ImagesData,
}  # fmt: skip
