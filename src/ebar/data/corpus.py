"""A corpus: sequences to train on, to validate with and to test on, and how they are read.

Sequences of symbols: of a user's own files, one per line (.txt, .gz, .xz), or drawn from a known language.
"""

import gzip
import lzma
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.bounds import Count
from ebar.data.languages import Language
from ebar.data.packed import PackedPairs
from ebar.data.tokenisers import Alphabet, Tokeniser, encode_lines, reading_of_space
from ebar.errors import UserError, choose, no_file
from ebar.maths.randomness import folded
from ebar.maths.rows import count_rows, evenly, take
from ebar.store.differences import LATER, lasting
from ebar.types import Context, Sequences, Space

FEW_LOGITS = 1024  # held-out rows scored together where a token is one of a few symbols


@runtime_checkable
class Stored(Protocol):
    """Rows that become sequences when they are asked for: images as bytes, tokens on disk."""

    def __len__(self) -> int: ...

    def fetch(self, rows: Int[Tensor, " selected"]) -> Any: ...


Part = Sequences | tuple[Sequences, Context] | Stored
"""Sequences in memory, with their sources, or stored."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What a model is trained on, held out from, and tested on."""

    space: Space  # the model's
    parts: Mapping[str, Part]  # train, validation, test
    tokeniser: Tokeniser | None  # None for images
    source_tokeniser: Tokeniser | None = None  # of what is translated; it may be the same one
    language: Language | None = None  # where the truth is known
    shape: Mapping[str, int] = field(default_factory=dict)  # arguments of a backbone besides its vocabulary
    held_out_batch: int = 1  # at least so many held-out rows are scored together: more where a token has few logits
    source: Any = None  # the dataclass of its kind, from which it was read: an entry of DATA with its options
    files: Mapping[str, str] = field(default_factory=dict)  # what a run folder must keep of it, by name
    written: Sequence[tuple[str, str]] | None = None  # test sentences and their translations as they stand in the files

    @property
    def train(self) -> Sequences:
        return self.sequences("train")

    @property
    def validation(self) -> Sequences:
        return self.sequences("validation")

    @property
    def test(self) -> Sequences:
        return self.sequences("test")

    @property
    def origin(self) -> dict[str, Any] | None:
        """Its kind and the kind's options, as a configuration has them; None where it was made of something else."""
        if self.source is None:
            return None
        return {"kind": self.source.kind, **lasting(self.source, as_before=True)}

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Options that suit this kind of data, by the name of the network that has them."""
        return getattr(self.source, "defaults", {})

    @cached_property
    def reading(self) -> Reading:
        """How tokens are read as text: what features are bound to."""
        return reading_of_space(self.tokeniser, self.space)

    @cached_property
    def source_reading(self) -> Reading | None:
        """The same of the sources, if there are some: what features that look at them are bound to as well."""
        if self.source_tokeniser is None:
            return None
        size, contexts = self.source_tokeniser.size, (self.sources(part) for part in self.parts)
        longest = max(int(context.given.lengths.max()) for context in contexts if context is not None)
        return reading_of_space(self.source_tokeniser, Space(size + 1, longest, size))

    @property
    def alphabet(self) -> Alphabet:
        """The tokeniser where tokens are characters: what motifs and expressions are written in."""
        if isinstance(self.tokeniser, Alphabet):
            return self.tokeniser
        raise UserError("Features are written in characters, which the tokens of this run are not.")

    def sequences(self, part: str) -> Sequences:
        """A part as a whole and in memory, sources left out."""
        found = choose(self.parts, part, "part of a corpus")
        if isinstance(found, Sequences):
            return found
        if isinstance(found, tuple):
            return found[0]
        stored = found.target if isinstance(found, PackedPairs) else found
        rows: Sequences = stored.fetch(torch.arange(len(stored)))
        return rows

    def sources(self, part: str) -> Context | None:
        """What the sequences of a part translate, if they do."""
        found = choose(self.parts, part, "part of a corpus")
        if isinstance(found, PackedPairs):
            return Context(found.source.fetch(torch.arange(len(found))))
        return found[1] if isinstance(found, tuple) and not isinstance(found, Sequences) else None

    def text(self, x: Sequences) -> list[str]:
        """Sequences as strings, the end left out; the levels of images as numbers."""
        tokens = [[token for token in row if token != self.space.end] for row in x.rows()]
        if self.tokeniser is None:
            return [" ".join(map(str, row)) for row in tokens]
        return [self.tokeniser.decode(row) for row in tokens]


def ended_space(tokeniser: Tokeniser, longest: int, maximal: int | None) -> Space:
    """Of sequences with an end, the longest of n symbols.

    A model may produce sequences of `maximal` tokens, the end included; by default 2n + 1.
    """
    length = 2 * longest + 1 if maximal is None else maximal
    if length < longest + 1:
        raise UserError(
            f"The longest sequence has {longest} symbols and an end, more than a maximal_length of {length}."
        )
    return Space(tokeniser.size + 1, length, tokeniser.size)


def last_tenth(part: Any, what: str) -> tuple[Any, Any]:
    """Training and validation rows, cut at one place: pieces of text next to each other share their subject."""
    rows = count_rows(part)
    if rows < 2:
        raise UserError(
            f"The training text has only one {what}: give more text, a validation file, or make each {what} shorter."
        )
    cut = rows - max(1, rows // 10)
    return take(part, slice(0, cut)), take(part, slice(cut, rows))


def every_nth(part: Any, n: int, there_are: str, what: str) -> tuple[Any, Any]:
    """Training rows without every n-th, and every n-th as validation rows."""
    rows = torch.arange(count_rows(part))
    if len(rows) < n:
        raise UserError(f"{there_are} {len(rows)} of the {n} {what} that are needed: give more, or a validation file.")
    return take(part, rows[rows % n != n - 1]), take(part, rows[rows % n == n - 1])


def three_parts(train: Any, validation: Any, test: Any, *, split: Callable[[Any], tuple[Any, Any]]) -> dict[str, Any]:
    """By name. Without validation rows `split` takes some of the training rows, without test rows they are these."""
    if validation is None:
        train, validation = split(train)
    return {"train": train, "validation": validation, "test": validation if test is None else test}


def drawn_rows(part: Any, most: int | None, seed: int) -> Any:
    """At most so many rows, drawn by the seed."""
    rows = count_rows(part)
    if most is None or most >= rows:
        return part
    return take(part, torch.randperm(rows, generator=Generator().manual_seed(folded(seed, 1)))[:most])


def at_most(part: Any, most: int | None) -> Any:
    """At most so many rows, evenly spread from the first to the last."""
    rows = count_rows(part)
    return part if most is None or most >= rows else take(part, evenly(rows, most))


LANGUAGE = ("motif", "expression", "alphabet", "length", "presence", "stop")  # options that describe a language
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


@contextmanager
def readable(path: Path, reached: Callable[[], str]) -> Iterator[Any]:
    """A file, opened. An error while it is read becomes one sentence; `reached` says how far reading has come."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise no_file(path) from None
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError):
        raise UserError(f"{path} cannot be decompressed past {reached()}: it is damaged or cut short.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): give a file that can.") from None


def read_npz(path: Path, name: str) -> NDArray[Any]:
    """The array of an .npz archive that is called so, or its only one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = archive.files
            if name not in names and len(names) != 1:
                raise UserError(f"{path} holds {', '.join(names) or 'nothing'}: call its array of {name} '{name}'.")
            return np.asarray(archive[name if name in names else names[0]])
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        raise UserError(f"{path} is not a readable .npz archive of numbers: write it with numpy.savez.") from None


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, counted from 1; an empty line is an empty sequence.

    Line ends of Windows, and the mark that its editors put before the first line (BOM), are no part of any.
    """
    number = 0
    with readable(path, lambda: f"line {number}") as file:
        for number, raw in enumerate(file, 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: byte {error.start + 1} is not UTF-8: save it so.") from None
            yield number, text.removesuffix("\n").removesuffix("\r")
    if number == 0:
        raise UserError(f"{path} is empty: it needs one sequence per line.")


def symbols_of(path: Path) -> str:
    """The characters a file uses, in order: the alphabet where none is given."""
    seen: set[str] = set()
    for _, text in numbered_lines(path):
        seen.update(text)
    if not seen:
        raise UserError(f"{path} holds only empty lines: it needs one sequence per line.")
    return "".join(sorted(seen))


def longest_of(path: Path, tokeniser: Tokeniser) -> int:
    """Tokens in the longest line, an end not counted."""
    return max(len(tokens) for _, tokens in _encoded(path, tokeniser))


def read_corpus(path: Path, tokeniser: Tokeniser, space: Space) -> Sequences:
    """One sequence per line, ended where the space has an end; a line that does not fit is an error that names it."""
    if tokeniser.size > space.vocabulary or (space.end is not None and space.end < tokeniser.size):
        raise ValueError(f"{tokeniser.size} tokens, and an end that is none of them, do not fit in {space}")
    ending = [] if space.end is None else [space.end]
    flat, lengths = array("q"), array("q")
    for number, encoded in _encoded(path, tokeniser):
        tokens = encoded + ending
        if space.end is None and len(tokens) != space.length:
            raise UserError(
                f"{path}, line {number}: {len(tokens)} tokens where each line must have {space.length}: make them "
                "equally long, or leave out fixed_length."
            )
        if len(tokens) > space.length:
            allowed = f"{space.length} allowed, the end included"
            raise UserError(f"{path}, line {number}: {len(tokens)} tokens are more than the {allowed}.")
        flat.extend(tokens)
        lengths.append(len(tokens))
    return padded(flat, lengths)


def padded(flat: "array[int]", lengths: "array[int]") -> Sequences:
    """Rows that stand one after another, as a batch."""
    counts = torch.frombuffer(lengths, dtype=torch.long).clone()
    x = Sequences(torch.zeros(len(counts), int(counts.max()), dtype=torch.long), counts)
    if len(flat):
        x.tokens[x.mask()] = torch.frombuffer(flat, dtype=torch.long)
    return x


def _encoded(path: Path, tokeniser: Tokeniser) -> Iterator[tuple[int, list[int]]]:
    for number, text in numbered_lines(path):
        yield number, encode_lines(tokeniser, [text], number, lambda line: f"{path}, line {line}")[0]


def validation_size(training: int) -> int:
    """|V| = min(max(b, ¼|D|), 2000) with b = min(|D|, 500): the authors' code of Parshakova et al. 2019."""
    return min(max(min(training, 500), training // 4), 2000)


SMALL: Mapping[str, Any] = {"bidirectional": {"layers": 2, "hidden": 64}}  # for sequences of a few symbols


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
    fixed_length: bool = field(default=False, metadata=LATER)
    """All lines have as many symbols, and no token marks their end: draws have exactly so many."""
    limit: Count | None = field(default=None, metadata=LATER)
    """Most training lines, drawn by the run's seed; by default all."""
    held_out_limit: Count | None = field(default=None, metadata=LATER)
    """Most validation lines and test lines, evenly spaced; by default all."""

    kind = "lines"
    defaults = SMALL

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """The alphabet is that of the training file, unless one is given."""
        alphabet = Alphabet(self.alphabet if self.alphabet is not None else symbols_of(self.train))
        longest = longest_of(self.train, alphabet)
        if self.fixed_length:
            if maximal_length is not None:
                raise UserError("Lines of a fixed length have no longest one: leave out maximal_length.")
            space = Space(alphabet.size, longest, completes=True)
        else:
            space = ended_space(alphabet, longest, maximal_length)
        files = (self.train, self.validation, self.test)
        read = (None if file is None else read_corpus(file, alphabet, space) for file in files)
        parts = three_parts(*read, split=lambda rows: every_nth(rows, 5, f"{self.train} has only", "lines"))
        parts |= {name: at_most(parts[name], self.held_out_limit) for name in ("validation", "test")}
        parts["train"] = drawn_rows(parts["train"], self.limit, seed)
        return Corpus(tokeniser=alphabet, space=space, parts=parts, source=self, held_out_batch=FEW_LOGITS)


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
    seed: int | None = None
    """Of the draws; by default that of the run."""
    limit: Count | None = field(default=None, metadata=LATER)
    """Most of the training sequences, the first ones; by default all."""

    kind = "language"
    defaults = SMALL

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """Drawn by the seed, its own or the one given here."""
        language = Language(**{name: getattr(self, name) for name in LANGUAGE})
        alphabet = Alphabet(self.alphabet)
        space = ended_space(alphabet, self.length, maximal_length)
        truth = language.distribution()
        sizes = {"train": self.size, "validation": validation_size(self.size), "test": self.test_size}
        seed = seed if self.seed is None else self.seed
        parts = {
            name: truth.sample(size, generator=Generator().manual_seed(folded(seed, place)))
            for place, (name, size) in enumerate(sizes.items())
        }
        parts["train"] = parts["train"].select(slice(self.limit))
        return Corpus(
            tokeniser=alphabet, space=space, parts=parts, source=self, held_out_batch=FEW_LOGITS, language=language
        )
