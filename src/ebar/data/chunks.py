"""Text as prefixes and continuations: what a residual model is trained, validated and tested on (Deng et al. 2020, §3).

Every continuation has the same number of tokens: a stream has no ends. (Stories that end within a continuation would
need chunks cut story by story; `Space.end` and `Sequences.lengths` allow for them, this cutting does not make them.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from safetensors.torch import save
from torch import Tensor

from ebar.bounds import Count
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.corpus import Corpus, at_most, last_tenth
from ebar.data.text import TextData, Texts, TextSource, read_tokens, texts_of, windows
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.store.stages import read_tensors
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving
from ebar.types import Context, Sequences

CHUNKS = "chunks.safetensors"
TOGETHER = 4096  # lines that a pretrained model's tokeniser encodes as one text
PARTS = ("train", "validation", "test")
TRIED = 500  # lines that a tokeniser must decode to what they were


class Positives(NamedTuple):
    """Sequences of the data, and the prefixes they continue: one row each, or None for whole sequences."""

    x: Sequences
    context: Context | None = None

    def spread(self, most: int | None) -> "Positives":
        """At most so many rows, evenly spread from the first to the last."""
        found: Positives = at_most(self, most)
        return found

    def select(self, rows: Tensor) -> "Positives":
        return Positives(self.x.select(rows), None if self.context is None else self.context.select(rows))

    def joined(self) -> Sequences:
        """Prefix and continuation as one sequence; all prefixes have one length, and all continuations."""
        if self.context is None:
            return self.x
        given = self.context.given
        return Sequences(torch.cat([given.tokens, self.x.tokens], 1), given.lengths + self.x.lengths)


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The parts of a text, or of a corpus of whole sequences."""

    train: Positives
    validation: Positives
    test: Positives
    tokeniser: Tokeniser | None = None

    @staticmethod
    def of(corpus: Corpus) -> "Chunks":
        """A corpus as it is: its sequences, and their sources where they have some."""
        parts = {name: Positives(corpus.sequences(name), corpus.sources(name)) for name in PARTS}
        return Chunks(**parts, tokeniser=corpus.tokeniser)


@dataclass(frozen=True, kw_only=True)
class ChunksData(TextSource):
    """Text, cut into prefixes and continuations (.txt, .gz, .xz)."""

    train: Path | None = None
    """Training text; by default that of the base, where it is a run of ebar's."""
    prefix: Count = 120
    """Tokens of the base that are given."""
    continuation: Count = 40
    """Tokens that follow and are modelled."""
    chunks: Count | None = None
    """At most so many training chunks, evenly spread over the text."""
    validation_chunks: Count = 1000
    """At most so many to choose weights by."""
    test_chunks: Count = 1000
    """At most so many for evaluation."""

    def read(self, tokeniser: Tokeniser, vocabulary: int | None = None, *, text: TextData | None = None) -> Chunks:
        """Cut in tokens of the base, of which it knows `vocabulary`; `text` is read where no file is given."""
        source = self._source(text)
        texts = {name: source.texts(name) for name in PARTS}
        assert texts["train"] is not None
        if isinstance(tokeniser, PretrainedTokeniser):
            # Otherwise an energy could tell draws of the base from data by how they are spelt alone.
            tokeniser.check_round_trip("".join(islice(texts_of(texts["train"]), TRIED)))
        parts = {
            name: self._cut(one, tokeniser, vocabulary or tokeniser.size)
            for name, one in texts.items()
            if one is not None
        }
        if "validation" not in parts:
            parts["train"], parts["validation"] = last_tenth(parts["train"], "chunk")
        return Chunks(
            train=parts["train"].spread(self.chunks),
            validation=parts["validation"].spread(self.validation_chunks),
            test=parts.get("test", parts["validation"]).spread(self.test_chunks),
            tokeniser=tokeniser,
        )

    def _source(self, text: TextData | None) -> TextSource:
        if self.train is not None or self.dataset is not None:
            return self
        if text is None:
            raise UserError("A pretrained base brings no text with it: give data.train or data.dataset.")
        return replace(text, validation=self.validation or text.validation, test=self.test or text.test)

    def _cut(self, text: Texts, tokeniser: Tokeniser, vocabulary: int) -> Positives:
        stream = read_stream(text, tokeniser)
        if len(stream) and int(stream.max()) >= vocabulary:
            raise UserError(
                f"The tokeniser of the base makes token {int(stream.max())} of this text, and the base knows "
                f"{vocabulary}: they do not belong together."
            )
        return Positives(*continuations(stream, prefix=self.prefix, continuation=self.continuation))


def stored_chunks(path: Path, tokeniser: Tokeniser, read: Callable[[], Chunks]) -> Chunks:
    """The chunks of the file; where there is none, those that `read` gives, which are then written there."""
    if path.exists():
        return _stored(path, tokeniser)
    chunks = read()
    tensors = {}
    for name in PARTS:
        x, context = getattr(chunks, name)
        assert context is not None
        tensors[f"{name}.prefix"] = context.given.tokens.to(torch.int32).contiguous()
        tensors[f"{name}.continuation"] = x.tokens.to(torch.int32).contiguous()
    with saving(str(path)):
        replace_file(path, save(tensors))
    return chunks


def _stored(path: Path, tokeniser: Tokeniser) -> Chunks:
    tensors = read_tensors(path, *(f"{name}.{side}" for name in PARTS for side in ("prefix", "continuation")))
    parts = {
        name: Positives(_whole(tensors[f"{name}.continuation"]), Context(_whole(tensors[f"{name}.prefix"])))
        for name in PARTS
    }
    return Chunks(**parts, tokeniser=tokeniser)


def _whole(tokens: Tensor) -> Sequences:
    return Sequences(tokens.long(), torch.full((len(tokens),), tokens.shape[1]))


def read_stream(texts: Texts, tokeniser: Tokeniser) -> Int[Tensor, " tokens"]:
    """A pretrained model has read whole texts: lines encoded one by one would be tokens that it seldom saw."""
    if not isinstance(tokeniser, PretrainedTokeniser):
        return read_tokens(texts, tokeniser)
    lines, tokens = texts_of(texts), list[int]()
    while together := list(islice(lines, TOGETHER)):
        tokens += tokeniser.encode("".join(together))
    return torch.tensor(tokens, dtype=torch.long)


def continuations(
    stream: Int[Tensor, " tokens"], *, prefix: int = 120, continuation: int = 40
) -> tuple[Sequences, Context]:
    """Consecutive chunks of `prefix` + `continuation` tokens, none overlapping another; a shorter rest is left out.

    Disjoint, because a token that is a positive of one chunk and a condition of the next would count twice.
    """
    if prefix < 1 or continuation < 1:
        raise UserError(f"A chunk has a prefix and a continuation of a token or more, not {prefix} and {continuation}.")
    length = prefix + continuation
    if len(stream) < length:
        raise UserError(
            f"The text has {len(stream):,} tokens, too few for one chunk of {prefix:,} + {continuation:,}: "
            "give more text, or shorter prefixes and continuations."
        )
    chunks = windows(stream, length)
    lengths = chunks.lengths
    given = Sequences(chunks.tokens[:, :prefix].contiguous(), lengths - continuation)
    return Sequences(chunks.tokens[:, prefix:].contiguous(), lengths - prefix), Context(given)
