"""Text as one stream of tokens, cut into windows of one length."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ebar.bounds import Count
from ebar.data.built_tokeniser import TOKENISER, build_tokeniser, written
from ebar.data.corpora import lines, readable
from ebar.data.corpus import Corpus
from ebar.data.hub import HubSplit, HubTexts
from ebar.data.packed import Packed, pack_stream
from ebar.data.tokenisers import Bytes, Tokeniser, encode_many, space_of
from ebar.errors import UserError
from ebar.maths.rows import evenly, take
from ebar.store.fingerprint import fingerprint
from ebar.types import Sequences

AT_ONCE = 4096  # lines that are encoded together
BLOCK = 1 << 20  # bytes that are read together

Texts = Path | Iterable[str]
"""A file (plain, .gz, .xz), or texts from anywhere else."""


def texts_of(texts: Texts) -> Iterator[str]:
    """The lines of a file, each with its line break; or the texts themselves."""
    if isinstance(texts, str):
        raise TypeError("a text alone would be read as texts of one character: give [text], or Path(text) for a file")
    if isinstance(texts, Path):
        yield from (f"{text}\n" for _, text in lines(texts))
    else:
        yield from texts


def blocks_of(texts: Texts, tokeniser: Tokeniser) -> Iterator[NDArray[np.uint32]]:
    """The tokens of a corpus, block by block, so that it never is in memory as a whole.

    Each line is encoded by itself, its line break included: the tokens do not depend on how blocks are cut. A
    file read as bytes is read as it is, text or not.
    """
    if isinstance(texts, Path) and isinstance(tokeniser, Bytes):
        yield from (np.frombuffer(block, np.uint8).astype(np.uint32) for block in _raw(texts))
        return
    rest = texts_of(texts)
    number = 1
    while together := list(islice(rest, AT_ONCE)):
        encoded = _encoded(texts, tokeniser, together, number)
        yield np.fromiter((token for tokens in encoded for token in tokens), np.uint32)
        number += len(together)


def read_tokens(texts: Texts, tokeniser: Tokeniser) -> Int[Tensor, " tokens"]:
    """The whole stream, in memory."""
    blocks = list(blocks_of(texts, tokeniser))
    return torch.from_numpy(np.concatenate(blocks or [np.zeros(0, np.uint32)]).astype(np.int64))


def windows(tokens: Int[Tensor, " tokens"], length: int) -> Sequences:
    """Consecutive windows of `length` tokens, for a space without an end; a shorter rest is left out."""
    rows = len(tokens) // length
    if rows == 0:
        raise UserError(f"The text has {len(tokens):,} tokens, too few for one window of {length:,}.")
    return Sequences(tokens[: rows * length].view(rows, length), torch.full((rows,), length))


def read_text(texts: Texts, tokeniser: Tokeniser, length: int) -> Sequences:
    """A corpus as windows of `length` tokens."""
    return windows(read_tokens(texts, tokeniser), length)


def _encoded(texts: Texts, tokeniser: Tokeniser, together: list[str], first: int) -> list[list[int]]:
    try:
        return encode_many(tokeniser, together)
    except UserError:
        for number, text in enumerate(together, first):
            try:
                tokeniser.encode(text)
            except UserError as error:
                what = f"{texts}, line {number}" if isinstance(texts, Path) else f"Text {number}"
                raise UserError(f"{what}: {error}") from None
        raise


def _raw(path: Path) -> Iterator[bytes]:
    done = 0
    with readable(path, lambda: f"byte {done:,}") as file:
        while block := file.read(BLOCK):
            yield block
            done += len(block)
    if done == 0:
        raise UserError(f"{path} is empty.")


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Text as one stream of tokens, cut into windows (.txt, .gz, .xz; any file as bytes)."""

    train: Path | None = None
    """Training text."""
    validation: Path | None = None
    """Held-out text for early stopping; without a file, the last tenth of the training windows."""
    test: Path | None = None
    """Held-out text for `ebar evaluate`; without a file, the validation text."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote: its splits train,
    validation and test."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""
    column: str = "text"
    """The column of the data set that holds the text."""
    tokeniser: str = "bytes"
    """What a token is: bytes, characters, words, bpe (or another entry of TOKENISERS)."""
    vocabulary: Count | None = None
    """Most tokens there may be; by default all characters or words, and 8,000 of bpe."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in place of a tokeniser made from the training text."""
    length: Count = 128
    """Tokens in a window."""
    limit: Count | None = None
    """Most tokens of the training text, from its beginning on; by default all."""
    held_out_limit: Count | None = None
    """Most tokens of the validation text and of the test text; by default all."""
    windows: int | None = None
    """Most training windows, evenly spread over the text; by default all."""
    held_out_windows: int | None = None
    """Most windows of the validation text and of the test text, evenly spread; by default all."""
    cache: Path | None = None
    """Folder for the tokens of a training text that is larger than memory: written once, read as needed."""

    kind = "text"

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """A tokeniser that `folder` holds is read from there."""
        if maximal_length is not None:
            raise UserError("The sequences of text data have one length: leave out training.maximal_length.")
        train = texts_of_part(self, "train")
        assert train is not None
        tokeniser = build_tokeniser(self, lambda: texts_of(train), folder)
        return Corpus(
            tokeniser=tokeniser,
            space=space_of(tokeniser, self.length, end=False),
            parts=text_parts(self, tokeniser),
            source=self,
            files={TOKENISER: written(tokeniser)},
        )


def texts_of_part(data: TextData, part: str) -> Texts | None:
    """Where the text of a part comes from, if it has one of its own."""
    if (data.train is None) == (data.dataset is None):
        raise UserError("Text comes from files or from a data set: give either data.train or data.dataset.")
    if data.dataset is not None:
        split = HubSplit(name=data.dataset, split=part, configuration=data.dataset_configuration)
        return HubTexts(data=split, text=data.column)
    path: Path | None = getattr(data, part)
    return path


def text_parts(data: TextData, tokeniser: Tokeniser) -> dict[str, Sequences | Packed]:
    """Train, validation and test."""
    train, validation, test = (texts_of_part(data, part) for part in ("train", "validation", "test"))
    assert train is not None
    parts: dict[str, Sequences | Packed] = {}

    def read(texts: Texts, limit: int | None, most: int | None) -> Sequences:
        found = windows(read_tokens(texts, tokeniser)[:limit], data.length)
        return found if most is None else take(found, evenly(len(found.lengths), most))

    if data.cache is not None:
        if data.limit is not None or data.windows is not None:
            raise UserError(
                "A text that stays on disk is read as a whole: leave out data.limit and data.windows, or data.cache."
            )
        if validation is None:
            raise UserError("A text that stays on disk needs a validation file of its own: give data.validation.")
        made = {
            "text": data.dataset if data.train is None else data.train,
            "configuration": data.dataset_configuration,
            "column": data.column,
            "tokeniser": fingerprint(written(tokeniser)),
        }
        folder = data.cache / f"text-{fingerprint(made, data.length)}"
        parts["train"] = pack_stream(
            folder,
            lambda: blocks_of(train, tokeniser),
            vocabulary=tokeniser.size,
            length=data.length,
            description=made,
        )
    else:
        parts["train"] = read(train, data.limit, data.windows)
    if validation is None:
        parts["train"], parts["validation"] = _last_tenth(parts["train"])
    else:
        parts["validation"] = read(validation, data.held_out_limit, data.held_out_windows)
    parts["test"] = parts["validation"] if test is None else read(test, data.held_out_limit, data.held_out_windows)
    return parts


def _last_tenth(x: Sequences | Packed) -> tuple[Sequences, Sequences]:
    """Cut at one place: windows next to each other share their subject."""
    assert isinstance(x, Sequences)
    rows = len(x.lengths)
    if rows < 2:
        raise UserError(
            "The training text has only one window: give more, a validation file, or a smaller data.length."
        )
    cut = rows - max(1, rows // 10)
    return take(x, slice(0, cut)), take(x, slice(cut, rows))
