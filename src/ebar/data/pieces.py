"""Tokens that are pieces of words, bytes at least: byte-pair encoding and unigram pieces, trained by `tokenizers`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ebar.automata.lift import byte_level
from ebar.data.tokenisers import check_tokens
from ebar.errors import UserError
from ebar.hugging_face import tokenizers

TOKENS = 8000  # where no number is given


@dataclass(frozen=True, slots=True)
class Pieces:
    """What all tokenisers of pieces have in common: pieces of words, bytes at least, spelt as `tokenizers` says.

    Every text has tokens, and comes back from them exactly. Tokens that together are no UTF-8 decode to U+FFFD where
    they are not.
    """

    kind: ClassVar[str]  # its name in TOKENISERS

    model: str  # the JSON text of `tokenizers`
    _tokenizer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokenizer = tokenizer_from_json(self.model)
        object.__setattr__(self, "_tokenizer", tokenizer)
        object.__setattr__(self, "model", tokenizer.to_str())  # as the library writes it, so that equal ones are equal

    @classmethod
    def read(cls, fields: dict[str, Any]) -> "Pieces":
        """From what `to_json` wrote."""
        return cls(json.dumps(fields["model"], ensure_ascii=False))

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def locate(self, text: str) -> list[tuple[int, int]]:
        """For each token, its first character in the text and the one after its last."""
        return list(self._tokenizer.encode(text).offsets)

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    def spellings(self) -> list[bytes | None]:
        return [*byte_level([self._tokenizer.id_to_token(token) for token in range(self.size)])]

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "model": json.loads(self.model)}, ensure_ascii=False) + "\n"


class Bpe(Pieces):
    """Pieces of words, merged from bytes: every text has tokens, and comes back from them exactly."""

    __slots__ = ()
    kind = "bpe"

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Bpe":
        """At most `size` tokens, the 256 bytes first; fewer where the texts have nothing more to merge."""
        size = TOKENS if size is None else size
        if size < 256:
            raise ValueError(
                f"byte-pair encoding starts from 256 bytes, so {size} tokens are too few: give a larger vocabulary"
            )
        library = tokenizers()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size, show_progress=False, special_tokens=[], initial_alphabet=_bytes(library)
        )
        return Bpe(_trained(library, library.models.BPE(), trainer, texts))


class Unigram(Pieces):
    """Pieces of words with a chance each; a text becomes its likeliest pieces (Kudo 2018, as in SentencePiece).

    The 256 bytes are pieces too: every text has tokens, and comes back from them exactly, blanks, line breaks and
    characters that training did not see included. A blank belongs to the word after it. SentencePiece writes one before
    the first word of a text as well, and then does not know whether it was there; here none is added.
    """

    __slots__ = ()
    kind = "unigram"

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Unigram":
        """At most `size` tokens; fewer where the texts have no more pieces worth one.

        What is held in memory are the different words and how often each occurs, not the texts.
        """
        size = TOKENS if size is None else size
        if size <= 256:
            raise ValueError(f"unigram pieces come on top of 256 bytes, so a size of {size} is too small")
        library = tokenizers()
        trainer = library.trainers.UnigramTrainer(
            vocab_size=size, show_progress=False, special_tokens=[], initial_alphabet=_bytes(library)
        )
        return Unigram(_settled(_trained(library, library.models.Unigram(), trainer, texts)))


def _settled(model: str) -> str:
    """The same pieces in one order, with scores that do not depend on the run.

    The library goes through its tables in an order drawn anew each time: sums differ in their last digits, and bytes
    that are no piece of their own accord have scores at most 256 · 1e-4 above the lowest, in any order.
    """
    described = json.loads(model)
    pieces: list[tuple[str, float]] = described["model"]["vocab"]
    if pieces[0][1] is None:  # infinite, of no text at all
        raise UserError("There is no word to make pieces of: the text is empty.")
    lowest = min(score for _, score in pieces)
    scores = {piece: lowest if len(piece) == 1 and score < lowest + 0.03 else score for piece, score in pieces}
    settled = [(piece, round(score, 6)) for piece, score in scores.items()]
    described["model"]["vocab"] = sorted(settled, key=lambda pair: (-pair[1], pair[0]))
    return json.dumps(described, ensure_ascii=False)


def _bytes(library: Any) -> list[str]:
    return sorted(library.pre_tokenizers.ByteLevel.alphabet())


def _trained(library: Any, model: Any, trainer: Any, texts: Iterable[str]) -> str:
    """The JSON text of a tokenizer of pieces within words, trained on texts one after another."""
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str())


def tokenizer_from_json(model: str) -> Any:
    """The object of the package `tokenizers` that its JSON text describes."""
    library = tokenizers()
    try:
        return library.Tokenizer.from_str(model)
    except Exception as error:  # the library raises no narrower class
        raise UserError(f"This is no tokeniser that `tokenizers` can read: {error}.") from None
