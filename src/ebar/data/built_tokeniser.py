"""The tokenisers that can be chosen by name; once made for a run they are stored in its folder and read from there.

A tokenizer of Hugging Face as a tokeniser of ebar.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ebar.automata.lift import byte_level
from ebar.bounds import Count
from ebar.data.hub import FilesOrDataset
from ebar.data.pieces import Bpe as Bpe
from ebar.data.pieces import Unigram as Unigram
from ebar.data.pieces import tokenizer_from_json
from ebar.data.tokenisers import REPLACEMENT, Alphabet, Bytes, Storable, Tokeniser, Words, check_tokens
from ebar.errors import UserError
from ebar.tables import Table

SPACE = "\u2581"  # how sentencepiece writes a blank
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class PretrainedTokeniser:
    """Text ↔ the tokens of a pretrained model.

    No special token comes out of text, not even where text spells one; a special token spells nothing.
    """

    model: str  # the JSON text of `tokenizers`
    beginning: int | None = None  # the token that a text begins with, where there is one
    end: int | None = None  # the one it ends with
    original: Any = field(default=None, repr=False, compare=False)  # transformers' own, to be saved with the model
    size: int = field(init=False, compare=False)  # one more than the last token: not every number below need be one
    _tokenizer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokenizer = tokenizer_from_json(self.model)
        tokenizer.encode_special_tokens = True  # that is: as the text they are spelt with
        tokenizer.no_padding()
        tokenizer.no_truncation()
        object.__setattr__(self, "_tokenizer", tokenizer)
        object.__setattr__(self, "size", 1 + max(tokenizer.get_vocab(with_added_tokens=True).values()))

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "PretrainedTokeniser":
        """Not possible: it comes with its model, or from a file that its `to_json` wrote."""
        raise UserError("A pretrained tokeniser is not trained: give the tokeniser.json of a run as tokeniser_file.")

    @staticmethod
    def read(fields: dict[str, Any]) -> "PretrainedTokeniser":
        """From what `to_json` wrote."""
        model = json.dumps(fields["model"], ensure_ascii=False)
        return PretrainedTokeniser(model, beginning=fields["beginning"], end=fields["end"])

    @staticmethod
    def of(tokenizer: Any) -> "PretrainedTokeniser":
        """Of transformers' tokenizer, a fast one."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UserError(
                f"{type(tokenizer).__name__} is a slow tokenizer, which ebar cannot read: "
                "save the fast one of the same model (a tokenizer.json) beside the weights."
            )
        return PretrainedTokeniser(
            backend.to_str(), beginning=tokenizer.bos_token_id, end=tokenizer.eos_token_id, original=tokenizer
        )

    @property
    def begins(self) -> bool:
        """Whether the tokenizer itself puts the beginning before every text, as its model then expects it."""
        return self.beginning is not None and self.beginning in self._tokenizer.encode("").ids[:1]

    def number(self, piece: str) -> int | None:
        """The token that is written so in the vocabulary, special ones included."""
        found: int | None = self._tokenizer.token_to_id(piece)
        return found

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def locate(self, text: str) -> list[tuple[int, int]]:
        """For each token, its first character in the text and the one after its last."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def decode_after(self, before: list[int], tokens: list[int]) -> str:
        """What tokens add to the text of those before them: a blank between them is kept, which `decode` may drop."""
        text, begun = self.decode([*before, *tokens]), self.decode(before)
        if not text.startswith(begun):  # those before end within a character
            begun = begun.rstrip(REPLACEMENT)
        return text[len(begun) :]

    def check_round_trip(self, text: str) -> None:
        """An error where the text does not come back from its tokens."""
        back = self.decode(self.encode(text))
        if back == text:
            return
        place = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), min(len(text), len(back)))
        raise UserError(
            f"This tokenizer does not give text back as it was: {text[place : place + 20]!r} at character {place} "
            f"comes back as {back[place : place + 20]!r}, so use a model whose tokenizer keeps every character."
        )

    def spellings(self) -> list[bytes | None]:
        """What each token spells; None for special tokens and for numbers that are no token."""
        described = json.loads(self._tokenizer.to_str())
        added = {token["id"]: token for token in described["added_tokens"]}
        pieces = self._tokenizer.get_vocab(with_added_tokens=True)
        plain = [piece for piece, token in pieces.items() if token not in added]
        spelt: list[bytes | None] = [None] * self.size
        for piece, spelling in zip(plain, _spelt(plain, described), strict=True):
            spelt[pieces[piece]] = spelling
        for token in added.values():
            if not token["special"]:
                spelt[token["id"]] = token["content"].encode()
        return spelt

    def to_json(self) -> str:
        fields = {"model": json.loads(self.model), "beginning": self.beginning, "end": self.end}
        return json.dumps({"kind": "pretrained", **fields}, ensure_ascii=False) + "\n"


def _spelt(pieces: list[str], described: dict[str, Any]) -> list[bytes]:
    """A tokenizer's pieces as bytes."""
    decoder = described.get("decoder") or {}
    kinds = {part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part}
    if "ByteLevel" in kinds:
        return byte_level(pieces)
    if kinds & {"Metaspace", "ByteFallback"}:
        return [_sentencepiece(piece) for piece in pieces]
    raise UserError(
        f"Tokens of a {described['model'].get('type', 'nameless')} tokenizer have no exact spelling "
        "(blanks are guessed when text is put together): use a model with byte-level or sentencepiece tokens."
    )


def _sentencepiece(piece: str) -> bytes:
    byte = BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE, " ").encode()


TOKENISER, SOURCE_TOKENISER = "tokeniser.json", "source_tokeniser.json"

# An entry has `train(texts, size)`, which makes one, and `read(fields)`, which makes it again from the JSON object that
# its own `to_json` wrote; that object has the name of the entry as its "kind".
TOKENISERS: Table[Any] = Table(
    "tokeniser",
    {
        "bytes": Bytes,
        "characters": Alphabet,
        "words": Words,
        "bpe": Bpe,
        "unigram": Unigram,
        "pretrained": PretrainedTokeniser,
    },
)


@dataclass(frozen=True, kw_only=True)
class Tokenised(FilesOrDataset):
    """Data with a tokeniser."""

    tokeniser: str = "bytes"
    """What a token is: bytes, characters, words, bpe, unigram (or another entry of TOKENISERS)."""
    vocabulary: Count | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe and unigram."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training data."""
    cache: Path | None = None
    """Folder for the tokens of training data that are larger than memory: written once, read as needed."""

    defaults: ClassVar[Mapping[str, Any]] = {"lstm": {"embedding": 200}}  # a vector of each token, not one-hot


def build_tokeniser(
    data: Tokenised, texts: Callable[[], Iterable[str]], folder: Path | None, name: str = TOKENISER
) -> Tokeniser:
    """That of the run folder; else that of another run, where one is named; else one made from the texts."""
    if folder is not None and (folder / name).exists():
        return read_tokeniser_file(folder / name)
    if data.tokeniser_file is not None:
        return read_tokeniser_file(data.tokeniser_file if name == TOKENISER else data.tokeniser_file.with_name(name))
    entry = TOKENISERS.choose(data.tokeniser)
    try:
        made: Tokeniser = entry.train(texts(), data.vocabulary)
    except ValueError as error:
        raise UserError(f"The tokeniser {data.tokeniser} cannot be made: {error}.") from None
    return made


def written(tokeniser: Tokeniser) -> str:
    """The text that a tokeniser is stored as."""
    if not isinstance(tokeniser, Storable):
        raise TypeError(f"{type(tokeniser).__name__} has no to_json: it cannot be stored with a run")
    return tokeniser.to_json()


def read_tokeniser(text: str) -> Tokeniser:
    """The tokeniser that a `to_json` has written."""
    try:
        fields = json.loads(text)
        read: Tokeniser = TOKENISERS.choose(fields["kind"]).read(fields)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"This is no tokeniser written by ebar: {type(error).__name__}, {error}.") from None
    return read


def read_tokeniser_file(path: Path) -> Tokeniser:
    """That of a run folder, say."""
    try:
        return read_tokeniser(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The tokeniser {path} cannot be read: {error}.") from None
