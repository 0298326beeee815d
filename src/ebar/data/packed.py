"""Tokens on disk: written once, then mapped into memory page by page. A corpus may be larger than memory.

    <name>/header.json   what they were made from, and how many there are
    <name>/tokens.bin    all tokens, one after another, little-endian, 16 or 32 bits each
    <name>/offsets.bin   where each row begins, and the last ends, 64 bits each; none where rows are windows

A stream that was interrupted is gone on with where it was last known to be on the disk; pairs are written again from
the start.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ebar.errors import UserError
from ebar.store.stages import HEADER, Header, Stage, damaged, entered, open_stage
from ebar.store.writing import saving
from ebar.types import Context, Sequences

SAVED = 1 << 23  # bytes of tokens after which what was written is noted
NOTED = ("blocks", "tokens")


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of tokens in a folder: windows of one length of one stream, or rows of their own lengths."""

    folder: Path
    length: int | None = field(init=False)  # of every row, where they are windows
    _tokens: NDArray[Any] = field(init=False, repr=False, compare=False)
    _offsets: NDArray[Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        header = Header.read(self.folder / HEADER)
        if header is None or not header.done:
            raise UserError(f"{self.folder} holds no packed tokens, or not all of them: pack them again.")
        try:
            tokens = _mapped(self.folder / "tokens.bin", header.state["dtype"], header.state["tokens"])
            rows, length = header.state["rows"], header.state["length"]
            offsets = None if rows is None else _mapped(self.folder / "offsets.bin", "<u8", rows + 1)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(self.folder / "tokens.bin", error, delete=self.folder) from None
        for name, value in (("length", length), ("_tokens", tokens), ("_offsets", offsets)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        if self._offsets is not None:
            return len(self._offsets) - 1
        assert self.length is not None
        return len(self._tokens) // self.length

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        if self._offsets is not None:
            return torch.from_numpy(np.diff(self._offsets).astype(np.int64))
        assert self.length is not None
        return torch.full((len(self),), self.length)

    def fetch(self, rows: Int[Tensor, " selected"]) -> Sequences:
        """Some rows, in memory, padded to the longest of them."""
        if self._offsets is None:
            assert self.length is not None
            table = self._tokens[: len(self) * self.length].reshape(-1, self.length)
            found = torch.from_numpy(table[rows.numpy()].astype(np.int64))
            return Sequences(found, torch.full((len(rows),), self.length))
        begin, end = (torch.from_numpy(self._offsets[rows.numpy() + past].astype(np.int64)) for past in (0, 1))
        x = Sequences(torch.zeros(len(rows), int((end - begin).max()), dtype=torch.long), end - begin)
        for row, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
            x.tokens[row, : last - first] = torch.from_numpy(self._tokens[first:last].astype(np.int64))
        return x


@dataclass(frozen=True, slots=True)
class PackedPairs:
    """Targets and their sources."""

    target: Packed
    source: Packed

    def __post_init__(self) -> None:
        if len(self.target) != len(self.source):
            raise UserError(
                f"{self.target.folder} has {len(self.target):,} rows and {self.source.folder} {len(self.source):,}: "
                "delete both, they are not of one corpus."
            )

    def __len__(self) -> int:
        return len(self.target)

    @property
    def lengths(self) -> Int[Tensor, "rows sides"]:
        return torch.stack([self.target.lengths, self.source.lengths], 1)

    def fetch(self, rows: Int[Tensor, " selected"]) -> tuple[Sequences, Context]:
        return self.target.fetch(rows), Context(self.source.fetch(rows))


def pack_from(
    folder: Path,
    blocks: Callable[[int], Iterable[NDArray[Any]]],
    *,
    vocabulary: int,
    length: int,
    description: Mapping[str, Any] = {},
) -> Packed:
    """The same of a stream that can be begun at any block, by its number: after an interruption it is not read again.

    What is on the disk is noted every SAVED bytes of tokens.
    """
    with open_stage(folder, {"vocabulary": vocabulary, "length": length, **description}) as stage:
        if not stage.done:
            # An earlier version noted tokens, and no blocks.
            number, total = (int(stage.state.get(name, 0)) if "blocks" in stage.state else 0 for name in NOTED)
            path, dtype = folder / "tokens.bin", _dtype(vocabulary)
            with saving(str(folder)), path.open("r+b" if total else "wb") as file:
                file.truncate(total * np.dtype(dtype).itemsize)
                file.seek(0, os.SEEK_END)
                since = 0
                for block in blocks(number):
                    file.write(content := _stored(block, vocabulary))
                    number, total, since = number + 1, total + len(block), since + len(content)
                    if since >= SAVED:
                        _to_disk(file)
                        stage.save(dict(zip(NOTED, (number, total), strict=True)))
                        since = 0
                _to_disk(file)
            if total < length:
                raise UserError(f"The text has {total:,} tokens, too few for one window of {length:,}.")
            stage.save({"dtype": dtype, "tokens": total, "rows": None, "length": length, "blocks": number})
    return Packed(folder)


def pack_pairs(
    folder: Path,
    pairs: Callable[[], Iterable[tuple[list[int], list[int]]]],
    *,
    vocabularies: tuple[int, int],
    description: Mapping[str, Any] = {},
) -> PackedPairs:
    """Sources and targets, pair by pair (see `parallel.encoded_pairs`), written where they are not there yet."""
    made = {"vocabularies": list(vocabularies), **description}
    with open_stage(folder, made) as whole, ExitStack() as stack:
        headers = [folder / side / HEADER for side in ("source", "target")]
        if not whole.done or not all(header.exists() for header in headers):
            sides = [stack.enter_context(entered(header, made, seed=0)) for header in headers]
            with saving(str(folder)):
                writers = [
                    stack.enter_context(closing(_RowWriter(side, vocabulary)))
                    for side, vocabulary in zip(sides, vocabularies, strict=True)
                ]
                for pair in pairs():
                    for writer, tokens in zip(writers, pair, strict=True):
                        writer.add(tokens)
                for writer in writers:
                    writer.finish()
    return PackedPairs(Packed(folder / "target"), Packed(folder / "source"))


class _RowWriter:
    """One side's rows."""

    def __init__(self, stage: Stage, vocabulary: int):
        self.stage, self.vocabulary = stage, vocabulary
        self.tokens, self.offsets = ((stage.folder / name).open("wb") for name in ("tokens.bin", "offsets.bin"))
        self.total = self.rows = 0
        self.offsets.write(np.zeros(1, "<u8").tobytes())

    def add(self, tokens: list[int]) -> None:
        self.tokens.write(_stored(np.array(tokens, np.int64), self.vocabulary))
        self.total += len(tokens)
        self.rows += 1
        self.offsets.write(np.array([self.total], "<u8").tobytes())

    def finish(self) -> None:
        for file in (self.tokens, self.offsets):
            _to_disk(file)
        numbers = {"tokens": self.total, "rows": self.rows, "length": None}
        self.stage.save({"dtype": _dtype(self.vocabulary), **numbers})

    def close(self) -> None:
        for file in (self.tokens, self.offsets):
            file.close()


def _stored(tokens: NDArray[Any], vocabulary: int) -> bytes:
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise ValueError(f"tokens from {tokens.min()} to {tokens.max()} are not all in a vocabulary of {vocabulary}")
    return tokens.astype(_dtype(vocabulary)).tobytes()


def _dtype(vocabulary: int) -> str:
    return "<u2" if vocabulary <= 1 << 16 else "<u4"


def _mapped(path: Path, dtype: str, count: int) -> NDArray[Any]:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes where {count:,} numbers are wanted")
    return np.zeros(0, dtype) if count == 0 else np.memmap(path, dtype, "r", shape=(count,))


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
