"""The data of a run."""

from dataclasses import dataclass

import torch
from torch import Generator

from ebar.config.run import LanguageData, LinesData, Run
from ebar.data.corpora import longest_of, read_corpus, symbols_of, validation_size
from ebar.data.languages import Language
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError
from ebar.training.batches import folded
from ebar.types import Sequences, Space


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What a model is trained on, held out from, and tested on."""

    alphabet: Alphabet
    space: Space  # the model's
    train: Sequences
    validation: Sequences
    test: Sequences
    language: Language | None  # where the truth is known

    def text(self, x: Sequences) -> list[str]:
        """Sequences as strings, the end left out."""
        return [
            self.alphabet.decode([t for t in x.prefix(row) if t != self.space.end]) for row in range(len(x.lengths))
        ]


def build_corpus(run: Run) -> Corpus:
    """The data of a run. A language's draws depend on the seed; a user's files do not."""
    maximal = run.training.maximal_length
    if run.data.kind == "language":
        return _language_corpus(LanguageData(**run.data.options), run.seed, maximal)
    return _lines_corpus(LinesData(**run.data.options), maximal)


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
    return Corpus(alphabet=alphabet, space=space, language=language, **parts)


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
    return Corpus(alphabet=alphabet, space=space, train=train, validation=validation, test=test, language=None)


def _space(alphabet: Alphabet, longest: int, maximal: int | None) -> Space:
    length = 2 * longest + 1 if maximal is None else maximal
    if length < longest + 1:
        raise UserError(
            f"The longest sequence has {longest} symbols and an end, more than a maximal_length of {length}."
        )
    return Space(alphabet.size + 1, length, alphabet.size)
