"""Labelled data of a task: examples to train on, to validate with and to test on, as texts and as tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from jaxtyping import Int
from torch import Tensor

from ebar.data.built_tokeniser import TOKENISER, Specials, specials_of, vocabulary_with_specials, written
from ebar.data.labelled.encoding import Encoded, Encoding, Labelled, Text
from ebar.data.labelled.examples import Example, Task
from ebar.data.tokenisers import Storable, Tokeniser
from ebar.errors import choose


@dataclass(frozen=True, kw_only=True)
class LabelledCorpus:
    """What a task model is trained on, held out from, and tested on."""

    encoding: Encoding
    written: Mapping[str, Sequence[Example]]  # by part: the examples as they stand in their files
    parts: Mapping[str, Labelled]  # train, validation, test
    characters: Mapping[str, Int[Tensor, "rows length 2"]] = field(default_factory=dict)  # by part, see `Encoded`
    source: Any = None  # the options it was read with
    files: Mapping[str, str] = field(default_factory=dict)  # what a run folder must keep of it, by name

    @staticmethod
    def of(examples: Mapping[str, Sequence[Example]], encoding: Encoding, source: Any = None) -> "LabelledCorpus":
        """Examples of each part, encoded."""
        encoded = {part: encoding.encode(own) for part, own in examples.items()}
        characters = {part: own.characters for part, own in encoded.items() if own.characters is not None}
        parts = {part: own.labelled for part, own in encoded.items()}
        storable = isinstance(encoding.tokeniser, Storable)
        files = {TOKENISER: written(encoding.tokeniser)} if storable else {}
        return LabelledCorpus(
            encoding=encoding, written=examples, parts=parts, characters=characters, source=source, files=files
        )

    @property
    def task(self) -> Task:
        return self.encoding.task

    @property
    def tokeniser(self) -> Tokeniser:
        return self.encoding.tokeniser

    @property
    def specials(self) -> Specials:
        return self.encoding.specials

    @property
    def vocabulary(self) -> int:
        """Tokens that a model of these data has, special ones counted."""
        return vocabulary_with_specials(self.tokeniser)

    @property
    def length(self) -> int:
        return self.encoding.length

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, in the order of their numbers."""
        return self.encoding.names

    @property
    def train(self) -> Labelled:
        return self.part("train")

    @property
    def validation(self) -> Labelled:
        return self.part("validation")

    @property
    def test(self) -> Labelled:
        return self.part("test")

    @property
    def origin(self) -> dict[str, Any] | None:
        """The options it was read with, as a configuration has them; None where it was made of something else."""
        if self.source is None:
            return None
        return {"kind": self.source.kind, **{own.name: getattr(self.source, own.name) for own in fields(self.source)}}

    def part(self, name: str) -> Labelled:
        return choose(self.parts, name, "part of labelled data")

    def with_tokeniser(self, tokeniser: Tokeniser, specials: Specials | None = None) -> "LabelledCorpus":
        """The same examples in the tokens of another tokeniser: that of the model which is to learn from them."""
        specials = specials_of(tokeniser) if specials is None else specials
        encoding = replace(self.encoding, tokeniser=tokeniser, specials=specials)
        return LabelledCorpus.of(self.written, encoding, self.source)

    def encode(self, texts: Sequence[Text]) -> Encoded:
        """New texts, as `Encoding.texts` reads them; their labels are not known."""
        return self.encoding.texts(texts)

    def answer(self, part: str, row: int, first: int, last: int) -> str:
        """The characters of the passage from place `first` to place `last` of a row; "" where they are no answer."""
        question = int(self.part(part).group[row])
        return answer_text(self.written[part][question].text, self.characters[part][row], first, last)


def answer_text(passage: str, characters: Int[Tensor, "length 2"], first: int, last: int) -> str:
    """The characters of a passage from one place to another; "" where a place is none of the passage's."""
    if not 0 <= first <= last < len(characters) or min(characters[first, 0], characters[last, 0]) < 0:
        return ""
    return passage[int(characters[first, 0]) : int(characters[last, 1])]
