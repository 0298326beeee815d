"""Tokens on disk: written once, then mapped into memory page by page. A corpus may be larger than memory.

    <name>/tokens.bin    all tokens, one after another, little-endian, 16 or 32 bits each
    <name>/offsets.bin   where each row begins, and the last ends, 64 bits each; none where rows are windows
    <name>/header.json   what they are

A folder appears complete or not at all: what was interrupted is written again from the start.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ebar.errors import UserError
from ebar.types import Context, Sequences

FORMAT = 1
WRITING = ".writing-"  # begins the name of a folder that is not complete


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of tokens in a folder: windows of one length of one stream, or rows of their own lengths."""

    folder: Path
    length: int | None = field(init=False)  # of every row, where they are windows
    _tokens: NDArray[Any] = field(init=False, repr=False, compare=False)
    _offsets: NDArray[Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            header = json.loads((self.folder / "header.json").read_bytes())
            if header["format"] != FORMAT:
                raise UserError(f"{self.folder} is packed by another version of ebar: delete it.")
            tokens = _mapped(self.folder / "tokens.bin", header["dtype"], header["tokens"])
            rows = header["rows"]
            offsets = None if rows is None else _mapped(self.folder / "offsets.bin", "<u8", rows + 1)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.folder} holds no packed tokens, or damaged ones ({error}): delete it.") from None
        for name, value in (("length", header["length"]), ("_tokens", tokens), ("_offsets", offsets)):
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


def pack_stream(folder: Path, blocks: Callable[[], Iterable[NDArray[Any]]], *, vocabulary: int, length: int) -> Packed:
    """A stream as windows of `length` tokens, written where it is not there yet."""

    def write(temporary: Path) -> None:
        total = 0
        with (temporary / "tokens.bin").open("wb") as file:
            for block in blocks():
                file.write(_stored(block, vocabulary))
                total += len(block)
            _to_disk(file)
        if total < length:
            raise UserError(f"The text has {total:,} tokens, too few for one window of {length:,}.")
        _write_header(temporary, vocabulary, tokens=total, rows=None, length=length)

    _once(folder, write)
    packed = Packed(folder)
    if packed.length != length:
        raise UserError(f"{folder} holds windows of {packed.length} tokens, not of {length}: give another folder.")
    return packed


def pack_pairs(
    folder: Path, pairs: Callable[[], Iterable[tuple[list[int], list[int]]]], *, vocabularies: tuple[int, int]
) -> PackedPairs:
    """Sources and targets, pair by pair (see `parallel.encoded_pairs`), written where they are not there yet."""

    def write(temporary: Path) -> None:
        sides = [temporary / "source", temporary / "target"]
        for side in sides:
            side.mkdir()
        writers = [_RowWriter(side, vocabulary) for side, vocabulary in zip(sides, vocabularies, strict=True)]
        try:
            for pair in pairs():
                for writer, tokens in zip(writers, pair, strict=True):
                    writer.add(tokens)
        finally:
            for writer in writers:
                writer.close()

    _once(folder, write)
    return PackedPairs(Packed(folder / "target"), Packed(folder / "source"))


def fingerprint(*parts: str | int | Path | None) -> str:
    """A name that changes when a file (by its size and time), the tokeniser or a setting does."""
    described = []
    for part in parts:
        if isinstance(part, Path):
            try:
                status = part.stat()
            except FileNotFoundError:
                raise UserError(f"There is no file {part}.") from None
            described.append([str(part.resolve()), status.st_size, status.st_mtime_ns])
        else:
            described.append([part])
    return sha256(json.dumps(described).encode()).hexdigest()[:16]


class _RowWriter:
    """One side's rows."""

    def __init__(self, folder: Path, vocabulary: int):
        self.folder, self.vocabulary = folder, vocabulary
        self.tokens, self.offsets = (folder / "tokens.bin").open("wb"), (folder / "offsets.bin").open("wb")
        self.total = self.rows = 0
        self.offsets.write(np.zeros(1, "<u8").tobytes())

    def add(self, tokens: list[int]) -> None:
        self.tokens.write(_stored(np.array(tokens, np.int64), self.vocabulary))
        self.total += len(tokens)
        self.rows += 1
        self.offsets.write(np.array([self.total], "<u8").tobytes())

    def close(self) -> None:
        for file in (self.tokens, self.offsets):
            _to_disk(file)
            file.close()
        _write_header(self.folder, self.vocabulary, tokens=self.total, rows=self.rows, length=None)


def _once(folder: Path, write: Callable[[Path], None]) -> None:
    if folder.exists():
        return
    temporary = folder.with_name(WRITING + folder.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder):  # another process that wants the same waits, and finds it done
            if folder.exists():
                return
            shutil.rmtree(temporary, ignore_errors=True)
            try:
                temporary.mkdir()
                write(temporary)
                os.rename(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UserError(f"Could not write {folder}: {error.strerror or error}; mend that and run it again.") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder.with_name(f".lock-{folder.name}"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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


def _write_header(folder: Path, vocabulary: int, **fields: int | None) -> None:
    content = {"format": FORMAT, "dtype": _dtype(vocabulary), "vocabulary": vocabulary, **fields}
    with (folder / "header.json").open("wb") as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())
        _to_disk(file)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
