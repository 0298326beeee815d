"""A corpus: sequences to train on, to validate with and to test on, and how they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from ebar.automata.reading import Reading
from ebar.data.languages import Language
from ebar.data.packed import PackedPairs
from ebar.data.tokenisers import Alphabet, Tokeniser, reading_of
from ebar.errors import UserError, choose
from ebar.maths.rows import count_rows, evenly, take
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
        kind = {field.name: getattr(self.source, field.name) for field in fields(self.source)}
        return {"kind": self.source.kind, **kind}

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Options that suit this kind of data, by the name of the network that has them."""
        return getattr(self.source, "defaults", {})

    @cached_property
    def reading(self) -> Reading:
        """How tokens are read as text: what features are bound to."""
        return reading_of(self.tokeniser, self.space)

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
        raise UserError(f"{there_are} {len(rows)} {what}: give more, or a validation file.")
    return take(part, rows[rows % n != n - 1]), take(part, rows[rows % n == n - 1])


def at_most(part: Any, most: int | None) -> Any:
    """At most so many rows, evenly spread from the first to the last."""
    rows = count_rows(part)
    return part if most is None or most >= rows else take(part, evenly(rows, most))
