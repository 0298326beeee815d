"""Parallel corpora: sentences and their translations, in two files of as many lines or in one with tabs."""

import warnings
from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

from ebar.data.corpora import lines, padded
from ebar.data.text import AT_ONCE
from ebar.data.tokenisers import Tokeniser, encode_lines
from ebar.errors import UserError, choose
from ebar.types import Context, Sequences

Files = Path | tuple[Path, Path] | Iterable[tuple[str, str]]
"""One file with tabs, or the source's and the target's (plain, .gz or .xz); or pairs from anywhere else."""


def pairs(files: Files, *, source_column: int = 0, target_column: int = 1) -> Iterator[tuple[str, str]]:
    """Source and target of each line. Columns, counted from 0, matter to a file with tabs only."""
    if isinstance(files, Path):
        yield from _columns(files, source_column, target_column)
    elif _two_files(files):
        yield from _side_by_side(*files)
    else:
        yield from cast(Iterable[tuple[str, str]], files)


def read_parallel(files: Files, source: Tokeniser, target: Tokeniser, **options: Any) -> tuple[Sequences, Context]:
    """Targets x and sources C; options are those of `encoded_pairs`."""
    sides: tuple[tuple[array[int], array[int]], ...] = ((array("q"), array("q")), (array("q"), array("q")))
    for encoded in encoded_pairs(files, source, target, **options):
        for (flat, lengths), tokens in zip(sides, encoded, strict=True):
            flat.extend(tokens)
            lengths.append(len(tokens))
    given, x = (padded(*side) for side in sides)
    return x, Context(given)


def encoded_pairs(
    files: Files,
    source: Tokeniser,
    target: Tokeniser,
    *,
    source_column: int = 0,
    target_column: int = 1,
    length: int | None = None,
    too_long: Literal["skip", "error"] = "error",
) -> Iterator[tuple[list[int], list[int]]]:
    """The tokens of source and target, pair by pair, each side ended by the token numbered after its tokeniser's last.

    `length` is the most tokens on either side, the end included; pairs that have more are an error, or are left
    out and counted in a warning.
    """
    skips = choose({"skip": True, "error": False}, too_long, "way with long pairs")
    number = skipped = 0
    rest = pairs(files, source_column=source_column, target_column=target_column)
    while together := list(islice(rest, AT_ONCE)):
        sides = [
            encode_lines(tokeniser, texts, number + 1, partial(_line, files, at))
            for at, (tokeniser, texts) in enumerate(zip((source, target), zip(*together, strict=True), strict=True))
        ]
        for given, x in zip(*sides, strict=True):
            number += 1
            longest = max(len(given), len(x)) + 1
            if length is None or longest <= length:
                yield [*given, source.size], [*x, target.size]
            elif skips:
                skipped += 1
            else:
                where = _line(files, 0 if len(given) >= len(x) else 1, number)
                raise UserError(f"{where}: {longest} tokens are more than the {length} allowed, the end included.")
    if number == 0:
        raise UserError("There are no sentence pairs: give some.")
    if skipped == number:
        raise UserError(f"All {number:,} pairs of {_name(files, 0)} have more than {length} tokens: allow longer ones.")
    if skipped:
        message = f"{skipped:,} of {number:,} pairs of {_name(files, 0)} have more than {length} tokens: left out"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _columns(path: Path, source: int, target: int) -> Iterator[tuple[str, str]]:
    if source == target or min(source, target) < 0:
        raise UserError(f"Source and target must be two different columns, not {source} and {target}.")
    for number, text in lines(path):
        columns = text.split("\t")
        if len(columns) < 2:
            raise UserError(f"{path}, line {number} has no tab: it needs a sentence, a tab and its translation.")
        if len(columns) <= max(source, target):
            wanted = max(source, target)
            raise UserError(f"{path}, line {number} has {len(columns)} columns: counted from 0, none is {wanted}.")
        yield columns[source], columns[target]


def _side_by_side(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    for left, right in zip_longest(lines(source), lines(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is not None and right is not None:
            yield left[1], right[1]
    if counts[0] != counts[1]:
        raise UserError(f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: they must have as many.")


def _line(files: Files, side: int, number: int) -> str:
    return f"{_name(files, side)}, line {number}"


def _name(files: Files, side: int) -> str:
    if isinstance(files, Path):
        return str(files)
    return str(files[side]) if _two_files(files) else "the corpus"


def _two_files(files: Files) -> TypeGuard[tuple[Path, Path]]:
    return isinstance(files, tuple) and len(files) == 2 and isinstance(files[0], Path)
