"""Byte-pair encoding, trained and run by `tokenizers`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ebar.automata.lift import byte_level
from ebar.data.pretrained_tokeniser import read_tokenizer
from ebar.data.tokenisers import check_tokens
from ebar.hugging_face import tokenizers

TOKENS = 8000  # where no number is given


@dataclass(frozen=True, slots=True)
class Bpe:
    """Pieces of words, merged from bytes: every text has tokens, and comes back from them exactly.

    Tokens that together are no UTF-8 decode to U+FFFD where they are not.
    """

    model: str  # the JSON text of `tokenizers`
    _tokenizer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokenizer = read_tokenizer(self.model)
        object.__setattr__(self, "_tokenizer", tokenizer)
        object.__setattr__(self, "model", tokenizer.to_str())  # as the library writes it, so that equal ones are equal

    @staticmethod
    def read(fields: dict[str, Any]) -> "Bpe":
        """From what `to_json` wrote."""
        return Bpe(json.dumps(fields["model"], ensure_ascii=False))

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Bpe":
        """At most `size` tokens, the 256 bytes first; fewer where the texts have nothing more to merge."""
        size = TOKENS if size is None else size
        if size < 256:
            raise ValueError(f"byte-pair encoding starts from 256 bytes, so a size of {size} is too small")
        library = tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size,
            show_progress=False,
            special_tokens=[],
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        )
        tokenizer.train_from_iterator(texts, trainer)
        return Bpe(tokenizer.to_str())

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    def spellings(self) -> list[bytes | None]:
        return [*byte_level([self._tokenizer.id_to_token(token) for token in range(self.size)])]

    def to_json(self) -> str:
        return json.dumps({"kind": "bpe", "model": json.loads(self.model)}, ensure_ascii=False) + "\n"
