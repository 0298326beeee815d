"""Text as one stream of tokens, cut into windows of one length."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ebar.bounds import Count
from ebar.data.built_tokeniser import TOKENISER, Tokenised, build_tokeniser, read_tokeniser_file, written
from ebar.data.corpus import Corpus, Part, at_most, last_tenth, numbered_lines, readable, three_parts
from ebar.data.hub import FilesOrDataset, HubTexts
from ebar.data.packed import Packed, pack_from
from ebar.data.tokenisers import Bytes, Tokeniser, encode_lines
from ebar.errors import UserError
from ebar.shards import Workers, run_shards
from ebar.store.fingerprint import fingerprint
from ebar.store.stages import open_stage
from ebar.types import Sequences, Space

AT_ONCE = 4096  # lines that are encoded together
BLOCK = 1 << 20  # bytes that are read together

Texts = Path | Iterable[str]
"""A file (plain, .gz, .xz), or texts from anywhere else."""


def texts_of(texts: Texts) -> Iterator[str]:
    """The lines of a file, each with its line break; or the texts themselves."""
    if isinstance(texts, str):
        raise TypeError("a text alone would be read as texts of one character: give [text], or Path(text) for a file")
    if isinstance(texts, Path):
        yield from (f"{text}\n" for _, text in numbered_lines(texts))
    else:
        yield from texts


def blocks_of(
    texts: Texts,
    tokeniser: Tokeniser,
    *,
    start: int = 0,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Iterator[NDArray[np.uint32]]:
    """The tokens of a corpus, block by block from number `start` on, so that it never is in memory as a whole.

    Each line is encoded by itself, its line break included: the tokens do not depend on how blocks are cut. A
    file read as bytes is read as it is, text or not. Blocks are encoded by `workers`, and read by this process.
    """
    if isinstance(texts, Path) and isinstance(tokeniser, Bytes):
        yield from (np.frombuffer(block, np.uint8).astype(np.uint32) for block in islice(_raw(texts), start, None))
        return
    common = _Encoding(tokeniser, f"{texts}, line" if isinstance(texts, Path) else "Text")
    blocks = run_shards(_encoded, common, islice(_cut(texts), start, None), workers=workers, in_order=True)
    with closing(blocks):
        for _, tokens in blocks:
            yield tokens


class _Encoding(NamedTuple):
    """What all blocks have in common."""

    tokeniser: Tokeniser
    place: str  # what a line is called


def _encoded(common: _Encoding, job: tuple[int, list[str]]) -> NDArray[np.uint32]:
    first, lines = job
    encoded = encode_lines(common.tokeniser, lines, first, lambda n: f"{common.place} {n}")
    return np.fromiter((token for tokens in encoded for token in tokens), np.uint32)


def _cut(texts: Texts) -> Iterator[tuple[int, list[str]]]:
    """Lines that are encoded together, with the number of the first: at most AT_ONCE, and no more than BLOCK
    characters but for the last of them."""
    number, together, size = 1, list[str](), 0
    for line in texts_of(texts):
        together.append(line)
        size += len(line)
        if len(together) >= AT_ONCE or size >= BLOCK:
            yield number, together
            number, together, size = number + len(together), [], 0
    if together:
        yield number, together


def read_tokens(texts: Texts, tokeniser: Tokeniser) -> Int[Tensor, " tokens"]:
    """The whole stream, in memory."""
    blocks = list(blocks_of(texts, tokeniser))
    return torch.from_numpy(np.concatenate(blocks or [np.zeros(0, np.uint32)]).astype(np.int64))


def windows(tokens: Int[Tensor, " tokens"], length: int) -> Sequences:
    """Consecutive windows of `length` tokens, for a space without an end; a shorter rest is left out."""
    rows = len(tokens) // length
    if rows == 0:
        raise UserError(
            f"The text has {len(tokens):,} tokens, too few for one window of {length:,}: give more text, or a smaller "
            "data.length."
        )
    return Sequences(tokens[: rows * length].view(rows, length), torch.full((rows,), length))


def _raw(path: Path) -> Iterator[bytes]:
    done = 0
    with readable(path, lambda: f"byte {done:,}") as file:
        while block := file.read(BLOCK):
            yield block
            done += len(block)
    if done == 0:
        raise UserError(f"{path} is empty: give a file with text in it.")


@dataclass(frozen=True, kw_only=True)
class TextSource(FilesOrDataset):
    """Text in files or in a column of a data set."""

    column: str = "text"
    """The column of the data set that holds the text."""

    def texts(self, part: str) -> Texts | None:
        """Where the text of a part comes from, if it has one of its own."""
        split = self.split(part)
        path: Path | None = getattr(self, part)
        return path if split is None else HubTexts(data=split, text=self.column)


@dataclass(frozen=True, kw_only=True)
class TextData(TextSource, Tokenised):
    """Text as one stream of tokens, cut into windows (.txt, .gz, .xz, or a data set of the hub)."""

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

    kind = "text"
    backbone = "transformer"  # what suits it, where nobody says otherwise

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """A tokeniser that `folder` holds is read from there."""
        if maximal_length is not None:
            raise UserError("The sequences of text data have one length: leave out training.maximal_length.")
        train = self.texts("train")
        assert train is not None
        tokeniser = build_tokeniser(self, lambda: texts_of(train), folder)
        return windowed(self, tokeniser, text_parts(self, tokeniser))


def windowed(data: Any, tokeniser: Tokeniser, parts: Mapping[str, Part], *, vocabulary: int | None = None) -> Corpus:
    """Pieces of `data.length` tokens, and the tokeniser for a run folder to keep."""
    space = Space(tokeniser.size if vocabulary is None else vocabulary, data.length)
    return Corpus(tokeniser=tokeniser, space=space, parts=parts, source=data, files={TOKENISER: written(tokeniser)})


def pack(
    data: TextData,
    *,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> tuple[Packed, Path]:
    """The training text in the folder of `data.cache`, and the file of its tokeniser, which is made and kept there."""
    texts = data.texts("train")
    assert texts is not None
    if data.cache is None:
        raise UserError("Packed tokens need a folder: give data.cache.")
    if data.tokeniser_file is not None:
        return pack_text(data, read_tokeniser_file(data.tokeniser_file), workers=workers), data.tokeniser_file
    made = {**_origin(data), "tokeniser": data.tokeniser, "vocabulary": data.vocabulary}
    with open_stage(data.cache / "tokeniser", made) as stage:
        if not stage.done:
            stage.write(TOKENISER, written(build_tokeniser(data, lambda: texts_of(texts), None)).encode())
    path = stage.folder / TOKENISER
    return pack_text(data, read_tokeniser_file(path), workers=workers), path


def _origin(data: TextData) -> dict[str, Any]:
    """Which text it is."""
    return {
        "text": data.dataset if data.train is None else data.train,
        "configuration": data.dataset_configuration,
        "column": data.column,
    }


def pack_text(
    data: TextData,
    tokeniser: Tokeniser,
    *,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Packed:
    """The training text in the folder of `data.cache`, in windows; read back where it is there already."""
    if data.cache is None:
        raise UserError("Packed tokens need a folder: give data.cache.")
    if data.limit is not None or data.windows is not None:
        raise UserError(
            "A text that stays on disk is read as a whole: leave out data.limit and data.windows, or data.cache."
        )
    train = data.texts("train")
    assert train is not None
    made = {**_origin(data), "tokeniser": fingerprint(written(tokeniser))}
    folder = data.cache / f"text-{fingerprint(made, data.length)}"
    return pack_from(
        folder, lambda start: blocks_of(train, tokeniser, start=start, workers=workers), vocabulary=tokeniser.size,
        length=data.length, description=made,
    )  # fmt: skip


def text_parts(data: TextData, tokeniser: Tokeniser) -> dict[str, Sequences | Packed]:
    """Train, validation and test."""
    train, validation, test = (data.texts(part) for part in ("train", "validation", "test"))
    assert train is not None

    def read(texts: Texts | None, limit: int | None, most: int | None) -> Any:
        return None if texts is None else at_most(windows(read_tokens(texts, tokeniser)[:limit], data.length), most)

    if data.cache is not None:
        if validation is None:
            raise UserError("A text that stays on disk needs a validation file of its own: give data.validation.")
        whole: Any = pack_text(data, tokeniser)
    else:
        whole = read(train, data.limit, data.windows)
    held_out = (read(texts, data.held_out_limit, data.held_out_windows) for texts in (validation, test))
    return three_parts(whole, *held_out, split=lambda rows: last_tenth(rows, "window"))
