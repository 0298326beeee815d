"""Text as one stream of tokens, cut into windows of one length."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ebar.data.corpora import lines, readable
from ebar.data.tokenisers import Bytes, Tokeniser, encode_many
from ebar.errors import UserError
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
