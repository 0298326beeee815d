"""Sequences drawn from a language of known entropy, as a corpus."""

from dataclasses import dataclass
from pathlib import Path

from torch import Generator

from ebar.bounds import Count
from ebar.data.corpora import validation_size
from ebar.data.corpus import FEW_LOGITS, Corpus, ended_space
from ebar.data.languages import Language
from ebar.data.tokenisers import Alphabet
from ebar.maths.randomness import folded


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

    kind = "language"

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """Drawn by the seed, its own or the one given here."""
        language = Language(
            motif=self.motif, expression=self.expression, alphabet=self.alphabet, length=self.length,
            presence=self.presence, stop=self.stop,
        )  # fmt: skip
        alphabet = Alphabet(self.alphabet)
        space = ended_space(alphabet, self.length, maximal_length)
        truth = language.distribution()
        sizes = {"train": self.size, "validation": validation_size(self.size), "test": self.test_size}
        seed = seed if self.seed is None else self.seed
        parts = {
            name: truth.sample(size, generator=Generator().manual_seed(folded(seed, place)))
            for place, (name, size) in enumerate(sizes.items())
        }
        return Corpus(
            tokeniser=alphabet,
            space=space,
            language=language,
            parts=parts,
            source=self,
            held_out_batch=FEW_LOGITS,
        )
