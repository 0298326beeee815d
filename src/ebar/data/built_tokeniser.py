"""The tokenisers that can be chosen by name; once made for a run they are stored in its folder and read from there."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ebar.bounds import Count
from ebar.data.bpe import Bpe
from ebar.data.hub import FilesOrDataset
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.data.tokenisers import Alphabet, Bytes, Storable, Tokeniser, Words
from ebar.errors import UserError
from ebar.tables import Table

TOKENISER, SOURCE_TOKENISER = "tokeniser.json", "source_tokeniser.json"

# An entry has `train(texts, size)`, which makes one, and `read(fields)`, which makes it again from the JSON object that
# its own `to_json` wrote; that object has the name of the entry as its "kind".
TOKENISERS: Table[Any] = Table(
    "tokeniser",
    {"bytes": Bytes, "characters": Alphabet, "words": Words, "bpe": Bpe, "pretrained": PretrainedTokeniser},
)


@dataclass(frozen=True, kw_only=True)
class Tokenised(FilesOrDataset):
    """Data with a tokeniser."""

    tokeniser: str = "bytes"
    """What a token is: bytes, characters, words, bpe (or another entry of TOKENISERS)."""
    vocabulary: Count | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
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
        return _read(folder / name)
    if data.tokeniser_file is not None:
        return _read(data.tokeniser_file if name == TOKENISER else data.tokeniser_file.with_name(name))
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


def _read(path: Path) -> Tokeniser:
    try:
        return read_tokeniser(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The tokeniser {path} cannot be read: {error}.") from None
