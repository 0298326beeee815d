"""The data of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Generator

from ebar.automata.reading import Reading
from ebar.data.built_tokeniser import SOURCE_TOKENISER, TOKENISER, build_tokeniser, written
from ebar.data.corpora import longest_of, read_corpus, symbols_of, validation_size
from ebar.data.images import Images, binarised, read_images
from ebar.data.kinds import ImagesData, LanguageData, LinesData, ParallelData, TextData
from ebar.data.languages import Language
from ebar.data.packed import Packed, PackedPairs
from ebar.data.parallel_parts import build_tokenisers, longest_target, parallel_parts, written_pairs
from ebar.data.text import texts_of as lines_of
from ebar.data.text_parts import text_parts, texts_of
from ebar.data.tokenisers import Alphabet, Tokeniser, reading_of, space_of
from ebar.errors import UserError, choose
from ebar.maths.randomness import folded
from ebar.types import Context, Sequences, Space

Part = Sequences | tuple[Sequences, Context] | Images | Packed | PackedPairs
"""Sequences in memory, with their sources, as bytes of pixels, or on disk."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What a model is trained on, held out from, and tested on."""

    space: Space  # the model's
    parts: Mapping[str, Part]  # train, validation, test
    tokeniser: Tokeniser | None  # None for images
    source_tokeniser: Tokeniser | None = None  # of what is translated; it may be the same one
    language: Language | None = None  # where the truth is known
    shape: Mapping[str, int] = field(default_factory=dict)  # what a backbone is told besides its vocabulary
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
        if isinstance(found, Images):
            return found.sequences()
        if isinstance(found, Packed | PackedPairs):
            stored = found.target if isinstance(found, PackedPairs) else found
            return stored.fetch(torch.arange(len(stored)))
        return found[0]

    def sources(self, part: str) -> Context | None:
        """What the sequences of a part translate, if they do."""
        found = choose(self.parts, part, "part of a corpus")
        if isinstance(found, PackedPairs):
            return Context(found.source.fetch(torch.arange(len(found))))
        return found[1] if isinstance(found, tuple) and not isinstance(found, Sequences) else None

    def text(self, x: Sequences) -> list[str]:
        """Sequences as strings, the end left out; the levels of images as numbers."""
        tokens = [[t for t in x.prefix(row) if t != self.space.end] for row in range(len(x.lengths))]
        if self.tokeniser is None:
            return [" ".join(map(str, row)) for row in tokens]
        return [self.tokeniser.decode(row) for row in tokens]


Kind = LanguageData | LinesData | TextData | ParallelData | ImagesData


def read_data(data: Kind, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
    """A language's draws depend on the seed; a user's files do not. A tokeniser that `folder` keeps is read from there.

    `maximal_length` is that of the sequences a model can produce, the end included; by default 2n + 1 for n symbols.
    """
    if isinstance(data, LanguageData):
        return _language_corpus(data, seed, maximal_length)
    if isinstance(data, LinesData):
        return _lines_corpus(data, maximal_length)
    if isinstance(data, ParallelData):
        return _parallel_corpus(data, seed, maximal_length, folder)
    if maximal_length is not None:
        kind = "text" if isinstance(data, TextData) else "images"
        raise UserError(f"The sequences of {kind} data have one length: leave out training.maximal_length.")
    return _text_corpus(data, folder) if isinstance(data, TextData) else _images_corpus(data, seed)


def _language_corpus(data: LanguageData, seed: int, maximal: int | None) -> Corpus:
    language = Language(
        motif=data.motif, expression=data.expression, alphabet=data.alphabet, length=data.length,
        presence=data.presence, stop=data.stop,
    )  # fmt: skip
    alphabet = Alphabet(data.alphabet)
    space = _space(alphabet, data.length, maximal)
    truth = language.distribution()
    sizes = {"train": data.size, "validation": validation_size(data.size), "test": data.test_size}
    parts = {
        name: truth.sample(size, generator=Generator().manual_seed(folded(seed, place)))
        for place, (name, size) in enumerate(sizes.items())
    }
    return Corpus(tokeniser=alphabet, space=space, language=language, parts=parts)


def _lines_corpus(data: LinesData, maximal: int | None) -> Corpus:
    alphabet = Alphabet(data.alphabet if data.alphabet is not None else symbols_of(data.train))
    space = _space(alphabet, longest_of(data.train, alphabet), maximal)
    train = read_corpus(data.train, alphabet, space)
    if data.validation is not None:
        validation = read_corpus(data.validation, alphabet, space)
    else:
        rows = torch.arange(len(train.lengths))
        if len(rows) < 5:
            raise UserError(f"{data.train} has only {len(rows)} lines: give more, or a validation file.")
        train, validation = train.select(rows % 5 != 4), train.select(rows % 5 == 4)
    test = validation if data.test is None else read_corpus(data.test, alphabet, space)
    return Corpus(tokeniser=alphabet, space=space, parts={"train": train, "validation": validation, "test": test})


def _text_corpus(data: TextData, folder: Path | None) -> Corpus:
    train = texts_of(data, "train")
    assert train is not None
    tokeniser = build_tokeniser(data, lambda: lines_of(train), folder)
    return Corpus(
        tokeniser=tokeniser,
        space=space_of(tokeniser, data.length, end=False),
        parts=text_parts(data, tokeniser),
        files={TOKENISER: written(tokeniser)},
    )


def _parallel_corpus(data: ParallelData, seed: int, maximal: int | None, folder: Path | None) -> Corpus:
    tokenisers = build_tokenisers(data, folder, seed)
    parts = parallel_parts(data, tokenisers, seed)
    space = _space(tokenisers.target, longest_target(parts["train"]) - 1, maximal)
    for name, part in parts.items():
        if (longest := longest_target(part)) > space.length:
            raise UserError(
                f"A {name} sentence has {longest} tokens, its end included, more than the {space.length} the model "
                "can produce: give a larger training.maximal_length."
            )
    files = {TOKENISER: written(tokenisers.target)}
    if not data.shared:
        files[SOURCE_TOKENISER] = written(tokenisers.source)
    return Corpus(
        tokeniser=tokenisers.target,
        source_tokeniser=tokenisers.source,
        space=space,
        parts=parts,
        # Said only where the sides have vectors of their own.
        shape={} if data.shared else {"source_vocabulary": tokenisers.source.size + 1},
        files=files,
        written=written_pairs(data),
    )


def _images_corpus(data: ImagesData, seed: int) -> Corpus:
    train = _images(data, data.train)
    if data.validation is not None:
        validation = _images(data, data.validation)
    else:
        if len(train) < 2:
            raise UserError(f"{data.train} has only one image: give more, or a validation file.")
        cut = len(train) - (max(1, len(train) // 10) if data.validation_size is None else data.validation_size)
        if cut < 1:
            raise UserError(f"{data.train} has {len(train)} images: a smaller data.validation_size leaves some.")
        train, validation = train.select(slice(0, cut)), train.select(slice(cut, len(train)))
    if data.limit is not None:
        order = torch.randperm(len(train), generator=Generator().manual_seed(folded(seed, 1)))
        train = train.select(order[: data.limit])
    test = validation if data.test is None else _images(data, data.test)
    for part, path in ((validation, data.validation), (test, data.test)):
        if part.pixels.shape[1:] != train.pixels.shape[1:]:
            sizes = (" × ".join(map(str, images.pixels.shape[1:])) for images in (part, train))
            raise UserError("{} has images of {} (height, width, channels), the training images are {}."
                            .format(path, *sizes))  # fmt: skip
    return Corpus(
        tokeniser=None,
        space=train.space,
        parts={"train": train, "validation": validation, "test": test},
        shape={"image_height": train.height, "image_width": train.width, "channels": train.channels},
    )


def _images(data: ImagesData, path: Path) -> Images:
    images = read_images(path)
    return binarised(images, data.binary_seed) if data.binary else images


def _space(tokeniser: Tokeniser, longest: int, maximal: int | None) -> Space:
    length = 2 * longest + 1 if maximal is None else maximal
    if length < longest + 1:
        raise UserError(
            f"The longest sequence has {longest} symbols and an end, more than a maximal_length of {length}."
        )
    return Space(tokeniser.size + 1, length, tokeniser.size)
