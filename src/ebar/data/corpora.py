"""A user's own sequences: text files, one sequence per line, plain or compressed (.gz, .xz)."""

import gzip
import lzma
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.data.corpus import FEW_LOGITS, Corpus, ended_space
from ebar.data.tokenisers import Alphabet, Tokeniser
from ebar.errors import UserError
from ebar.types import Sequences, Space

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


@contextmanager
def readable(path: Path, reached: Callable[[], str]) -> Iterator[Any]:
    """A file, opened; what goes wrong while it is read is told in one sentence, with how far reading had come."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError):
        raise UserError(f"{path} cannot be decompressed past {reached()}: it is damaged or cut short.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, counted from 1; an empty line is an empty sequence."""
    number = 0
    with readable(path, lambda: f"line {number}") as file:
        for number, raw in enumerate(file, 1):
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: byte {error.start + 1} is not UTF-8.") from None
            yield number, text.removesuffix("\n").removesuffix("\r")
    if number == 0:
        raise UserError(f"{path} is empty: it needs one sequence per line.")


def symbols_of(path: Path) -> str:
    """The characters a file uses, in order: the alphabet where none is given."""
    seen: set[str] = set()
    for _, text in lines(path):
        seen.update(text)
    if not seen:
        raise UserError(f"{path} holds only empty lines: it needs one sequence per line.")
    return "".join(sorted(seen))


def longest_of(path: Path, tokeniser: Tokeniser) -> int:
    """Tokens in the longest line, an end not counted."""
    return max(len(_encoded(path, number, text, tokeniser)) for number, text in lines(path))


def read_corpus(path: Path, tokeniser: Tokeniser, space: Space) -> Sequences:
    """One sequence per line, ended where the space has an end; a line that does not fit is an error that names it."""
    if tokeniser.size > space.vocabulary or (space.end is not None and space.end < tokeniser.size):
        raise ValueError(f"{tokeniser.size} tokens, and an end that is none of them, do not fit in {space}")
    ending = [] if space.end is None else [space.end]
    flat, lengths = array("q"), array("q")
    for number, text in lines(path):
        tokens = _encoded(path, number, text, tokeniser) + ending
        if space.end is None and len(tokens) != space.length:
            raise UserError(f"{path}, line {number}: {len(tokens)} tokens where each line must have {space.length}.")
        if len(tokens) > space.length:
            allowed = f"{space.length} allowed, the end included"
            raise UserError(f"{path}, line {number}: {len(tokens)} tokens are more than the {allowed}.")
        flat.extend(tokens)
        lengths.append(len(tokens))
    counts = torch.frombuffer(lengths, dtype=torch.long).clone()
    tokens_of = torch.zeros(len(counts), int(counts.max()), dtype=torch.long)
    x = Sequences(tokens_of, counts)
    if len(flat):
        tokens_of[x.mask()] = torch.frombuffer(flat, dtype=torch.long)
    return x


def _encoded(path: Path, number: int, text: str, tokeniser: Tokeniser) -> list[int]:
    try:
        return tokeniser.encode(text)
    except UserError as error:
        raise UserError(f"{path}, line {number}: {error}") from None


def validation_size(training: int) -> int:
    """|V| = min(max(b, ¼|D|), 2000) with b = min(|D|, 500): the authors' code of document 000."""
    return min(max(min(training, 500), training // 4), 2000)


def split(x: Sequences, training: int, *, generator: Generator) -> tuple[Sequences, Sequences]:
    """D and V: `training` random rows, and document 000's number of others."""
    validation = validation_size(training)
    if training < 1:
        raise UserError(f"A split needs at least one training sequence, got {training}.")
    if training + validation > len(x.lengths):
        wanted = f"{training:,} training and {validation:,} validation sequences"
        raise UserError(f"{wanted} are more than the {len(x.lengths):,} there are.")
    order = torch.randperm(len(x.lengths), generator=generator)
    return x.select(order[:training]), x.select(order[training : training + validation])


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

    kind = "lines"

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """The alphabet is that of the training file, unless one is given."""
        alphabet = Alphabet(self.alphabet if self.alphabet is not None else symbols_of(self.train))
        space = ended_space(alphabet, longest_of(self.train, alphabet), maximal_length)
        train = read_corpus(self.train, alphabet, space)
        if self.validation is not None:
            validation = read_corpus(self.validation, alphabet, space)
        else:
            rows = torch.arange(len(train.lengths))
            if len(rows) < 5:
                raise UserError(f"{self.train} has only {len(rows)} lines: give more, or a validation file.")
            train, validation = train.select(rows % 5 != 4), train.select(rows % 5 == 4)
        test = validation if self.test is None else read_corpus(self.test, alphabet, space)
        parts = {"train": train, "validation": validation, "test": test}
        return Corpus(tokeniser=alphabet, space=space, parts=parts, source=self, held_out_batch=FEW_LOGITS)
